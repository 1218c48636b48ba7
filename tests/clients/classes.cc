// Uses the classes of onnxruntime's C++ header and prints a line for each result, so that the lines of two libraries can be compared.
//
// classes MODEL SCRATCH: MODEL is examples/digits/digits.onnx, SCRATCH a directory for files. A line that ends with NOT_IMPLEMENTED is for
// what a library does not have; addresses, times and messages are never printed.

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <mutex>
#include <numeric>
#include <sstream>

#include "cpu_provider_factory.h"
#include "onnxruntime_cxx_api.h"

namespace {

using Floats = std::vector<float>;
using Shape = std::vector<int64_t>;

template <typename T>
std::string join(const T& values) {
  std::string text;
  for (const auto& value : values) {
    std::ostringstream one;
    one << value;
    text += (text.empty() ? "" : " ") + one.str();
  }
  return "[" + text + "]";
}

void show(const char* what, const std::string& text) { std::cout << what << ": " << text << std::endl; }

template <typename T>
void show(const char* what, const T& value) {
  std::ostringstream text;
  text << value;
  show(what, text.str());
}

// Prints what a call returns, or the code of its error.
void attempt(const char* what, const std::function<std::string()>& call) {
  try {
    show(what, call());
  } catch (const Ort::Exception& error) {
    const int code = error.GetOrtErrorCode();
    show(what, code == ORT_NOT_IMPLEMENTED ? std::string("NOT_IMPLEMENTED") : "error " + std::to_string(code));
  }
}

Ort::MemoryInfo cpu() { return Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault); }

Ort::Value make_tensor(Floats& values, const Shape& shape) {
  return Ort::Value::CreateTensor<float>(cpu(), values.data(), values.size(), shape.data(), shape.size());
}

Floats read(const Ort::Value& value) {
  const float* data = value.GetTensorData<float>();
  return Floats(data, data + value.GetTensorTypeAndShapeInfo().GetElementCount());
}

Ort::TypeInfo make_type(ONNXTensorElementDataType element, const Shape& shape, const std::vector<std::string>& names) {
  Ort::TensorTypeAndShapeInfo tensor(element, shape, &names);
  return Ort::TypeInfo::CreateTensorInfo(tensor.GetConst());
}

Ort::TypeInfo floats(const Shape& shape) {
  return make_type(ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, shape, std::vector<std::string>(shape.size()));
}

// A port of a graph.
struct Port {
  const char* name;
  Ort::TypeInfo type;
};

std::vector<Ort::ValueInfo> make_ports(std::vector<Port>& ports) {
  std::vector<Ort::ValueInfo> infos;
  for (auto& port : ports) infos.emplace_back(port.name, port.type.GetConst());
  return infos;
}

Ort::Model make_model(Ort::Graph& graph, std::vector<Port> inputs, std::vector<Port> outputs) {
  auto in = make_ports(inputs);
  auto out = make_ports(outputs);
  graph.SetInputs(in);
  graph.SetOutputs(out);
  Ort::Model model({{"", 18}, {"ai.onnx.ml", 3}});
  model.AddGraph(graph);
  return model;
}

void add(Ort::Graph& graph, const char* type, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
         std::vector<Ort::OpAttr> attributes = {}, const char* domain = "") {
  Ort::Node node(type, domain, std::string(type) + "-node", inputs, outputs, attributes);
  graph.AddNode(node);
}

void log(void* count, OrtLoggingLevel, const char*, const char*, const char*, const char*) { ++*static_cast<int*>(count); }

void describe_types() {
  for (const auto& type : {floats({-1, 3}), make_type(ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, {-1}, {"N"})}) {
    auto tensor = type.GetTensorTypeAndShapeInfo();
    show("tensor type", std::to_string(tensor.GetElementType()) + " " + join(tensor.GetShape()) + " " + join(tensor.GetSymbolicDimensions()));
    show("tensor has a shape", tensor.HasShape());
  }
  auto tensor = floats({2});
  auto sequence = Ort::TypeInfo::CreateSequenceTypeInfo(tensor.GetConst());
  show("sequence type", sequence.GetSequenceTypeInfo().GetSequenceElementType().GetONNXType());
  auto map = Ort::TypeInfo::CreateMapTypeInfo(ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, tensor.GetConst());
  show("map type", std::to_string(map.GetMapTypeInfo().GetMapKeyType()) + " " + std::to_string(map.GetMapTypeInfo().GetMapValueType().GetONNXType()));
  auto optional = Ort::TypeInfo::CreateOptionalTypeInfo(tensor.GetConst());
  show("optional type", optional.GetOptionalTypeInfo().GetOptionalElementType().GetONNXType());
  Ort::ValueInfo port("port", tensor.GetConst());
  show("value info", port.GetName() + " " + std::to_string(port.TypeInfo().GetONNXType()));
  const float half = 0.5f;
  Ort::OpAttr attribute("alpha", &half, 1, ORT_OP_ATTR_FLOAT);
  float alpha = 0;
  attribute.GetValue(alpha);
  show("attribute", attribute.GetName() + " " + std::to_string(attribute.GetType()) + " " + std::to_string(alpha));
  const int64_t axes[] = {1, 2};
  std::vector<int64_t> found;
  Ort::OpAttr("axes", axes, 2, ORT_OP_ATTR_INTS).GetValueArray(found);
  show("attribute with integers", join(found));
}

void use_memory(Ort::Session& session) {
  auto info = cpu();
  show("memory", info.GetAllocatorName() + " " + std::to_string(info.GetAllocatorType()) + " " + std::to_string(info.GetDeviceId()) + " " +
                     std::to_string(info.GetDeviceType()) + " " + std::to_string(info.GetMemoryType()));
  Ort::MemoryInfo other("Cuda", OrtDeviceAllocator, 0, OrtMemTypeDefault);
  show("memory of another device", std::to_string(other.GetDeviceType()) + (other == info ? " same" : " other"));
  Ort::MemoryInfo described("Cpu", OrtMemoryInfoDeviceType_CPU, 0, 0, OrtDeviceMemoryType_DEFAULT, 0, OrtDeviceAllocator);
  show("described memory", std::to_string(described.GetVendorId()) + " " + std::to_string(described.GetDeviceMemoryType()));
  attempt("tensor in memory of another device", [&] {
    Ort::Allocator allocator(session, other);
    return std::string("made");
  });
  Ort::AllocatorWithDefaultOptions allocator;
  {
    Ort::MemoryAllocation memory = allocator.GetAllocation(64);
    std::memset(memory.get(), 1, memory.size());
    show("allocation", memory.size());
  }
  void* memory = allocator.Alloc(16);
  allocator.Free(memory);
  Ort::Allocator own(session, info);
  own.Free(own.Alloc(1024));
  show("allocator of a session", own.GetInfo().GetAllocatorName());
  Ort::KeyValuePairs pairs(std::unordered_map<std::string, std::string>{{"one", "1"}});
  pairs.Add("two", "2");
  pairs.Remove("one");
  show("pairs", std::to_string(pairs.GetKeyValuePairs().size()) + " " + pairs.GetValue("two") + (pairs.GetValue("one") ? " one" : ""));
  Ort::ArenaCfg arena(0, -1, -1, -1);
  Ort::ArenaCfg named(std::unordered_map<std::string, size_t>{{"max_mem", 1 << 20}});
}

void use_values() {
  Ort::AllocatorWithDefaultOptions allocator;
  Floats numbers{1, 2, 3, 4, 5, 6};
  auto tensor = make_tensor(numbers, {2, 3});
  tensor.At<float>({1, 2}) = 60;
  show("tensor", join(numbers) + " " + std::to_string(tensor.GetTensorSizeInBytes()) + " " + tensor.GetTensorMemoryInfo().GetAllocatorName());
  ONNXTensorElementDataType element{};
  Ort::Value::Shape place{};
  tensor.GetTensorElementTypeAndShapeDataReference(element, place);
  show("shape in place", std::to_string(element) + " " + join(Shape(place.shape, place.shape + place.shape_len)));
  const int64_t two = 2;
  auto strings = Ort::Value::CreateTensor(allocator, &two, 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING);
  const char* words[] = {"one", "three"};
  strings.FillStringTensor(words, 2);
  strings.FillStringTensorElement("four", 0);
  std::memcpy(strings.GetResizedStringTensorElementBuffer(1, 2), "ab", 2);
  std::vector<char> bytes(strings.GetStringTensorDataLength());
  size_t offsets[2];
  strings.GetStringTensorContent(bytes.data(), bytes.size(), offsets, 2);
  show("strings", std::string(bytes.begin(), bytes.end()) + " " + std::to_string(offsets[1]) + " " + strings.GetStringTensorElement(1) + " " +
                      std::to_string(strings.GetStringTensorElementLength(0)));
  auto halves = Ort::Value::CreateTensor<Ort::Float16_t>(allocator, &two, 1);
  halves.GetTensorMutableData<Ort::Float16_t>()[0] = Ort::Float16_t(1.5f);
  show("half", halves.GetTensorData<Ort::Float16_t>()[0].ToFloat());
  auto brain = Ort::Value::CreateTensor<Ort::BFloat16_t>(allocator, &two, 1);
  show("types of bytes", std::to_string(brain.GetTensorTypeAndShapeInfo().GetElementType()) + " " +
                             std::to_string(Ort::Value::CreateTensor<Ort::Float8E4M3FN_t>(allocator, &two, 1).GetTensorSizeInBytes()));
  std::vector<Ort::Value> parts;
  for (float number : {1.0f, 2.0f}) {
    auto part = Ort::Value::CreateTensor<float>(allocator, &two, 1);
    std::fill_n(part.GetTensorMutableData<float>(), 2, number);
    parts.push_back(std::move(part));
  }
  auto sequence = Ort::Value::CreateSequence(parts);
  show("sequence", std::to_string(sequence.GetCount()) + " " + join(read(sequence.GetValue(1, allocator))) + (sequence.IsTensor() ? " tensor" : ""));
  int64_t keys[] = {7, 8};
  auto key = Ort::Value::CreateTensor<int64_t>(cpu(), keys, 2, &two, 1);
  auto map = Ort::Value::CreateMap(key, parts[0]);
  show("map", std::to_string(map.GetCount()) + " " + std::to_string(map.GetValue(0, allocator).GetTensorData<int64_t>()[1]) + " " +
                  join(read(map.GetValue(1, allocator))));
  show("type of a map", map.GetTypeInfo().GetMapTypeInfo().GetMapKeyType());
  attempt("sparse tensor", [&] {
    const int64_t dense = 9;
    auto sparse = Ort::Value::CreateSparseTensor(cpu(), numbers.data(), {&dense, 1}, {&two, 1}, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
    int64_t places[] = {1, 5};
    sparse.UseCooIndices(places, 2);
    return std::to_string(sparse.GetSparseFormat()) + " " + std::to_string(sparse.IsSparseTensor());
  });
  attempt("too little memory", [&] {
    make_tensor(numbers, {3, 3});
    return std::string("made");
  });
}

void use_options(Ort::SessionOptions& options, Ort::Env& env) {
  options.SetIntraOpNumThreads(2).SetInterOpNumThreads(1).SetGraphOptimizationLevel(ORT_ENABLE_EXTENDED);
  options.EnableCpuMemArena().DisableCpuMemArena().EnableMemPattern().DisableMemPattern().SetExecutionMode(ORT_SEQUENTIAL);
  options.SetLogId("classes").SetLogSeverityLevel(3).SetDeterministicCompute(true).SetLoadCancellationFlag(false);
  options.AddConfigEntry("session.intra_op.allow_spinning", "0").AddFreeDimensionOverrideByName("nothing", 3);
  options.AppendExecutionProvider_CPU(1);
  show("options", options.GetConfigEntry("session.intra_op.allow_spinning") + " " + options.GetConfigEntryOrDefault("none", "x") + " " +
                      std::to_string(options.HasConfigEntry("none")) + std::to_string(options.GetMemPatternEnabled()) +
                      std::to_string(options.GetExecutionMode()));
  auto copy = options.Clone();
  show("copy of options", copy.GetConst().GetConfigEntry("session.intra_op.allow_spinning"));
  Ort::CustomOpConfigs configs;
  configs.AddConfig("op", "key", "value");
  show("configuration of operators", configs.GetFlattenedConfigs().size());
  attempt("library of operators", [&] {
    copy.RegisterCustomOpsLibrary("/nowhere/operators.so");
    return std::string("registered");
  });
  attempt("another provider", [&] {
    copy.AppendExecutionProvider("NoSuchProvider", {});
    return std::string("appended");
  });
  attempt("domain of operators", [] {
    Ort::CustomOpDomain domain("example.org");
    return std::string("made");
  });
  const auto devices = env.GetEpDevices();
  show("devices", std::string(devices[0].EpName()) + " " + std::to_string(devices[0].Device().Type()) + " " +
                      std::to_string(devices[0].EpMetadata().GetKeyValuePairs().size() < 100));
  copy.AppendExecutionProvider_V2(env, {devices[0]}, std::unordered_map<std::string, std::string>{});
  auto providers = Ort::GetAvailableProviders();
  show("the provider is there", std::count(providers.begin(), providers.end(), "CPUExecutionProvider"));
}

void describe(Ort::Session& session) {
  Ort::AllocatorWithDefaultOptions allocator;
  show("inputs", join(session.GetInputNames()) + " " + std::to_string(session.GetInputCount()) + " " + session.GetInputNameAllocated(0, allocator).get());
  show("outputs", join(session.GetOutputNames()) + " " + std::to_string(session.GetOutputCount()));
  show("overridable", join(session.GetOverridableInitializerNames()));
  auto type = session.GetInputTypeInfo(0);
  show("input type", join(type.GetTensorTypeAndShapeInfo().GetShape()) + " " + join(type.GetTensorTypeAndShapeInfo().GetSymbolicDimensions()));
  show("output type", join(session.GetOutputTypeInfo(0).GetTensorTypeAndShapeInfo().GetShape()));
  show("operator set", session.GetOpset(""));
  show("memory of inputs", session.GetMemoryInfoForInputs()[0].GetAllocatorName() + " " + session.GetMemoryInfoForOutputs()[0].GetAllocatorName());
  show("device of inputs", session.GetEpDeviceForInputs().size());
  auto metadata = session.GetModelMetadata();
  show("metadata", std::string(metadata.GetProducerNameAllocated(allocator).get()) + "|" + metadata.GetGraphNameAllocated(allocator).get() + "|" +
                       metadata.GetDomainAllocated(allocator).get() + "|" + metadata.GetDescriptionAllocated(allocator).get() + "|" +
                       metadata.GetGraphDescriptionAllocated(allocator).get() + "|" + std::to_string(metadata.GetVersion()));
  std::vector<std::string> properties;
  for (const auto& key : metadata.GetCustomMetadataMapKeysAllocated(allocator)) {
    properties.push_back(std::string(key.get()) + "=" + metadata.LookupCustomMetadataMapAllocated(key.get(), allocator).get());
  }
  std::sort(properties.begin(), properties.end());
  show("properties", join(properties));
}

struct Waiter {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  bool failed = false;
};

void finish(void* data, OrtValue**, size_t, OrtStatusPtr status) {
  auto& waiter = *static_cast<Waiter*>(data);
  std::lock_guard<std::mutex> lock(waiter.mutex);
  waiter.failed = !Ort::Status(status).IsOK();
  waiter.is_done = true;
  waiter.changed.notify_one();
}

void run(Ort::Session& session) {
  Floats image(64);
  std::iota(image.begin(), image.end(), 0.0f);
  auto input = make_tensor(image, {1, 1, 8, 8});
  const std::string name = session.GetInputNames()[0], result = session.GetOutputNames()[0];
  const char *names[] = {name.c_str()}, *results[] = {result.c_str()};
  Ort::RunOptions options;
  options.SetRunTag("tag").SetRunLogSeverityLevel(3).SetRunLogVerbosityLevel(0).AddConfigEntry("key", "value");
  show("run options", std::string(options.GetRunTag()) + " " + std::to_string(options.GetRunLogSeverityLevel()) + " " + options.GetConfigEntry("key"));
  auto outputs = session.Run(options, names, &input, 1, results, 1);
  const Floats expected = read(outputs[0]);
  show("best", std::max_element(expected.begin(), expected.end()) - expected.begin());
  show("sum", std::to_string(std::accumulate(expected.begin(), expected.end(), 0.0f)));
  Floats memory(expected.size());
  auto into = make_tensor(memory, outputs[0].GetTensorTypeAndShapeInfo().GetShape());
  session.Run(options, names, &input, 1, results, &into, 1);
  show("run into memory", memory == expected);
  Ort::IoBinding binding(session);
  binding.BindInput(names[0], input);
  binding.BindOutput(results[0], cpu());
  binding.SynchronizeInputs();
  session.Run(options, binding);
  binding.SynchronizeOutputs();
  show("binding", join(binding.GetOutputNames()) + " " + std::to_string(read(binding.GetOutputValues()[0]) == expected));
  std::fill(memory.begin(), memory.end(), 0.0f);
  binding.ClearBoundOutputs();
  binding.BindOutput(results[0], into);
  session.Run(options, binding);
  show("bound memory", memory == expected);
  binding.ClearBoundInputs();
  Waiter waiter;
  Ort::Value later{nullptr};
  session.RunAsync(options, names, &input, 1, results, &later, 1, finish, &waiter);
  std::unique_lock<std::mutex> lock(waiter.mutex);
  waiter.changed.wait(lock, [&] { return waiter.is_done; });
  show("run in the background", std::to_string(waiter.failed) + " " + std::to_string(read(later) == expected));
  attempt("wrong shape", [&] {
    auto wrong = make_tensor(image, {1, 64});
    return std::to_string(session.Run(options, names, &wrong, 1, results, 1).size());
  });
  attempt("unknown input", [&] {
    const char* unknown[] = {"unknown"};
    return std::to_string(session.Run(options, unknown, &input, 1, results, 1).size());
  });
  options.SetTerminate();
  attempt("terminated", [&] { return std::to_string(session.Run(options, names, &input, 1, results, 1).size()); });
  options.UnsetTerminate();
  show("not terminated", session.Run(options, names, &input, 1, results, 1).size());
  attempt("assignment of nodes", [&] { return std::to_string(session.GetEpGraphAssignmentInfo().size()); });
}

std::vector<Ort::OpAttr> axis() {
  const int64_t first = 0;
  std::vector<Ort::OpAttr> attributes;
  attributes.emplace_back("axis", &first, 1, ORT_OP_ATTR_INT);
  return attributes;
}

void edit(const Ort::Env& env, const Ort::SessionOptions& options) {
  Ort::Graph graph;
  Floats weights{10, 20};
  const Shape two{2};
  Ort::AllocatorWithDefaultOptions allocator;
  auto initializer = Ort::Value::CreateTensor<float>(allocator, two.data(), 1);
  std::copy(weights.begin(), weights.end(), initializer.GetTensorMutableData<float>());
  graph.AddInitializer("w", initializer, false);
  const float alpha = 0.5f;
  std::vector<Ort::OpAttr> attributes;
  attributes.emplace_back("alpha", &alpha, 1, ORT_OP_ATTR_FLOAT);
  add(graph, "LeakyRelu", {"x"}, {"r"}, std::move(attributes));
  add(graph, "Add", {"r", "w"}, {"y"});
  add(graph, "SequenceConstruct", {"x", "y"}, {"s"});
  add(graph, "ConcatFromSequence", {"s"}, {"z"}, axis());
  std::vector<Port> inputs, outputs;
  inputs.push_back({"x", floats({-1, 2})});
  outputs.push_back({"y", floats({-1, 2})});
  outputs.push_back({"z", floats({-1, 2})});
  auto model = make_model(graph, std::move(inputs), std::move(outputs));
  Ort::Session session(env, model, options);
  Floats values{-2, 4};
  auto x = make_tensor(values, {1, 2});
  const char *names[] = {"x"}, *results[] = {"y", "z"};
  auto found = session.Run(Ort::RunOptions(), names, &x, 1, results, 2);
  show("model of nodes", join(read(found[0])) + " " + join(read(found[1])));
}

void use_sessions(Ort::Env& env, const char* path, const std::string& scratch) {
  Ort::SessionOptions options;
  use_options(options, env);
  Ort::Session session(env, path, options);
  describe(session);
  run(session);
  use_memory(session);
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Ort::PrepackedWeightsContainer weights;
  Ort::Session shared(env, bytes.data(), bytes.size(), options, weights);
  show("session of bytes", shared.GetInputCount());
  Ort::SessionOptions profiled;
  profiled.EnableProfiling((scratch + "/profile").c_str());
  Ort::Session third(env, path, profiled);
  show("start of the profile", third.GetProfilingStartTimeNs() > 0);
  std::ifstream profile(third.EndProfilingAllocated(Ort::AllocatorWithDefaultOptions()).get());
  show("profile", profile.good());
  attempt("no such file", [&] {
    Ort::Session missing(env, "/nowhere/model.onnx", options);
    return std::string("opened");
  });
  attempt("damaged bytes", [&] {
    Ort::Session damaged(env, "garbage", 7, options);
    return std::string("opened");
  });
  edit(env, options);
  attempt("compiled model", [&] {
    Ort::ModelCompilationOptions compile(env, options);
    compile.SetInputModelPath(path).SetOutputModelPath((scratch + "/compiled.onnx").c_str());
    return std::to_string(Ort::CompileModel(env, compile).IsOK());
  });
  attempt("adapter", [&] {
    Ort::LoraAdapter::CreateLoraAdapter("/nowhere/adapter", nullptr);
    return std::string("made");
  });
  attempt("options of CUDA", [] {
    Ort::CUDAProviderOptions cuda;
    return std::string("made");
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  show("version of the interface", ORT_API_VERSION);
  show("the release is there", !Ort::GetVersionString().empty() && !Ort::GetBuildInfoString().empty());
  int messages = 0;
  {
    Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "classes", log, &messages);
    env.DisableTelemetryEvents().EnableTelemetryEvents().UpdateEnvWithCustomLogLevel(ORT_LOGGING_LEVEL_FATAL);
    describe_types();
    use_values();
    use_sessions(env, arguments[1], arguments[2]);
  }
  {
    Ort::ThreadingOptions threads;
    threads.SetGlobalIntraOpNumThreads(2).SetGlobalInterOpNumThreads(1).SetGlobalSpinControl(0);
    Ort::Env env(threads, ORT_LOGGING_LEVEL_FATAL, "threads");
    Ort::SessionOptions options;
    options.DisablePerSessionThreads();
    Ort::Session session(env, arguments[1], options);
    show("shared threads", session.GetOutputCount());
    env.CreateAndRegisterAllocator(cpu(), nullptr).UnregisterAllocator(cpu());
  }
  Ort::Status status("words", ORT_FAIL);
  show("status", status.GetErrorMessage() + " " + std::to_string(status.GetErrorCode()) + " " + std::to_string(status.IsOK()));
  return 0;
}
