// Converts a model to another operator set, infers its types and runs it, with objects that free themselves.
//
// c++ -std=c++17 digits.cpp $(pkg-config --cflags --libs sardonyx) && ./a.out digits.onnx
#include <sardonyx.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

template <typename T, void (*release)(T*)>
struct Deleter {
  void operator()(T* object) const { release(object); }
};

using Error = std::unique_ptr<SardonyxError, Deleter<SardonyxError, sardonyx_error_free>>;
using Model = std::unique_ptr<SardonyxModel, Deleter<SardonyxModel, sardonyx_model_free>>;
using Session = std::unique_ptr<SardonyxSession, Deleter<SardonyxSession, sardonyx_session_free>>;
using Tensor = std::unique_ptr<SardonyxTensor, Deleter<SardonyxTensor, sardonyx_tensor_free>>;
using Text = std::unique_ptr<char, Deleter<char, sardonyx_text_free>>;

void check(SardonyxError* found) {
  if (Error error{found}) throw std::runtime_error(sardonyx_error_message(error.get()));
}

// Returns the object that a function writes to its last argument.
template <typename Owner, typename Function, typename... Arguments>
Owner make(Function function, Arguments... arguments) {
  typename Owner::pointer object = nullptr;
  check(function(arguments..., &object));
  return Owner(object);
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 2) return 2;
  const auto model = make<Model>(sardonyx_model_open, arguments[1]);
  const auto converted = make<Model>(sardonyx_model_convert, model.get(), "", 18u);
  const auto inferred = make<Model>(sardonyx_model_infer, converted.get());
  std::cout << "operator set " << sardonyx_model_opset(model.get(), "") << " to " << sardonyx_model_opset(inferred.get(), "") << "\n";
  const auto name = make<Text>(sardonyx_model_input_name, inferred.get(), size_t{0});

  const auto session = make<Session>(sardonyx_session_new, inferred.get(), size_t{1});
  const std::vector<float> pixels(2 * 64, 0.5f);
  const std::vector<int64_t> dims{2, 1, 8, 8};
  const auto images = make<Tensor>(sardonyx_tensor_new, SARDONYX_TYPE_FLOAT, dims.data(), dims.size(),
                                   static_cast<const void*>(pixels.data()), pixels.size() * sizeof(float));
  const char* names[] = {name.get()};
  const SardonyxTensor* inputs[] = {images.get()};
  SardonyxTensor* output = nullptr;
  check(sardonyx_session_run(session.get(), names, inputs, 1, &output, 1));
  const Tensor result(output);
  const int64_t* shape = sardonyx_tensor_dims(result.get());
  std::cout << sardonyx_session_output_name(session.get(), 0) << ": " << shape[0] << " x " << shape[1] << "\n";
  try {
    make<Model>(sardonyx_model_open, "nowhere.onnx");
  } catch (const std::runtime_error& error) {
    std::cout << "refused: " << error.what() << "\n";
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
