// Times calls of Run on a Relu of 4 elements with libraries by turns, in one process.
//
// overhead MODEL LIBRARY...: MODEL is one Relu from x to y. Prints the least and the median time of a call in microseconds, for each library.

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "onnxruntime_c_api.h"

namespace {

constexpr int ROUNDS = 60;
constexpr int CALLS = 2000;

// A library with a session of the model.
struct Client {
  const OrtApi* api;
  OrtEnv* env;
  OrtSessionOptions* options;
  OrtSession* session;
  OrtMemoryInfo* info;
  OrtValue* input;
  std::vector<double> times;
};

void check(const OrtApi* api, OrtStatus* status) {
  if (!status) return;
  std::fprintf(stderr, "%s\n", api->GetErrorMessage(status));
  std::exit(1);
}

Client open(const char* library, const char* model, float* elements) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  auto base = reinterpret_cast<const OrtApiBase* (*)()>(dlsym(handle, "OrtGetApiBase"));
  Client client{base()->GetApi(17), nullptr, nullptr, nullptr, nullptr, nullptr, {}};
  const OrtApi* api = client.api;
  check(api, api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "overhead", &client.env));
  check(api, api->CreateSessionOptions(&client.options));
  check(api, api->SetIntraOpNumThreads(client.options, 1));
  check(api, api->CreateSession(client.env, model, client.options, &client.session));
  check(api, api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &client.info));
  const int64_t dims[] = {4};
  check(api, api->CreateTensorWithDataAsOrtValue(client.info, elements, 16, dims, 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &client.input));
  return client;
}

// Runs calls that make their output and release it; returns the time of one in microseconds.
double time_calls(Client& client) {
  const char *inputs[] = {"x"}, *outputs[] = {"y"};
  const auto start = std::chrono::steady_clock::now();
  for (int call = 0; call < CALLS; ++call) {
    OrtValue* output = nullptr;
    check(client.api, client.api->Run(client.session, nullptr, inputs, &client.input, 1, outputs, 1, &output));
    client.api->ReleaseValue(output);
  }
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
  return passed.count() / CALLS;
}

}  // namespace

int main(int count, char** arguments) {
  float elements[] = {-1, 2, -3, 4};
  std::vector<Client> clients;
  for (int index = 2; index < count; ++index) clients.push_back(open(arguments[index], arguments[1], elements));
  for (int round = 0; round < ROUNDS; ++round) {
    for (auto& client : clients) client.times.push_back(time_calls(client));
  }
  for (size_t index = 0; index < clients.size(); ++index) {
    Client& client = clients[index];
    auto& times = client.times;
    std::sort(times.begin(), times.end());
    std::printf("%s: least %.3f us, median %.3f us\n", arguments[index + 2], times[0], times[ROUNDS / 2]);
    client.api->ReleaseValue(client.input);
    client.api->ReleaseMemoryInfo(client.info);
    client.api->ReleaseSession(client.session);
    client.api->ReleaseSessionOptions(client.options);
    client.api->ReleaseEnv(client.env);
  }
  return 0;
}
