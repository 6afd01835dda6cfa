#include <etude/checkpoint/torch_to_safetensors.hpp>

// Converts a file written by PyTorch's torch.save to safetensors, without executing anything in it:
//
//   pt_to_safetensors model.pt model.safetensors [--key state_dict]
//
// A checkpoint may hold several dicts of tensors (a model, an optimizer's state, an average of weights);
// --key selects one. Values that aren't tensors are reported and skipped.
int main(int argc, char** argv) {
  const bool with_key = argc == 5 && std::string_view(argv[3]) == "--key";
  if (argc != 3 && !with_key) {
    fmt::print(stderr, "usage: pt_to_safetensors model.pt model.safetensors [--key state_dict]\n");
    return 2;
  }
  try {
    const auto file = etude::torch_to_safetensors(argv[1], argv[2], with_key ? argv[4] : "");
    for (const auto& name : file.skipped) fmt::print(stderr, "skipped, not a tensor: {}\n", name);
    fmt::print("{} tensors\n", file.tensors.size());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
