// c_models FOLDER: writes the models that the tests of the C interface need.
#include <string>
#include <vector>

#include "common/exported_model.hpp"
#include "common/folder.hpp"
#include "common/zip_bytes.hpp"

namespace c_models {

namespace x = toy::exported;
using namespace std::string_literals;

/// dropout(a * w) + b, with w = 2.
x::Model with_dropout() {
  return {.inputs = {x::parameter("w"), x::batch("a", {"s0", "2"}), x::batch("b", {"s0", "2"})},
          .nodes = {x::call("aten.mul.Tensor", {{"self", x::tensor("a")}, {"other", x::tensor("p_w")}},
                            {x::tensor("product")}),
                    x::call("aten.dropout.default",
                            {{"input", x::tensor("product")}, {"p", x::real(0.5)}, {"train", x::flag(true)}},
                            {x::tensor("dropped")}),
                    x::call("aten.add.Tensor", {{"self", x::tensor("dropped")}, {"other", x::tensor("b")}},
                            {x::tensor("y")})},
          .outputs = {{"y", "y"}}};
}

void write(const std::string& path, const x::Model& model) {
  const std::string config =
      R"({"config": {"w": {"path_name": "weight_0", "is_param": true, "use_pickle": false, "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 1}], "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}}}}})";
  toy::write_text(path,
                  toy::zip_bytes({{"m/archive_format", "pt2"},
                                  {"m/archive_version", "0"},
                                  {"m/data/weights/weight_0", "\0\0\0\x40"s},
                                  {"m/models/model.json", model.json()},
                                  {"m/data/weights/model_weights_config.json", config},
                                  {"m/data/constants/model_constants_config.json", R"({"config": {}})"}}));
}

}  // namespace c_models

int main(int, char** argv) {
  const std::string folder = argv[1];
  auto model = c_models::with_dropout();
  c_models::write(folder + "/dropout.pt2", model);
  model.version = R"({"major": 9, "minor": 1})";
  c_models::write(folder + "/newer.pt2", model);
}
