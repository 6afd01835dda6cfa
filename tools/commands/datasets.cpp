#include "datasets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <etude/data/concatenated.hpp>
#include <etude/formats/csv.hpp>
#include <etude/formats/image_folder.hpp>
#include <etude/formats/npy.hpp>
#include <etude/formats/stored_tensors.hpp>
#include <etude/formats/token_windows.hpp>
#include <etude/reflect/nearest.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

namespace tool {
namespace fs = std::filesystem;

namespace {

using Input = etude::ExportedModule::Impl::Input;

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// A text's windows, for a model that takes inputs by name.
struct NamedWindows {
  using BatchType = etude::Batch;
  using BatchRequestType = etude::TokenWindows::BatchRequestType;

  std::size_t size() const { return windows.size(); }
  std::string fingerprint() const { return windows.fingerprint(); }

  etude::Batch get_batch(BatchRequestType indices) const {
    const auto batch = windows.get_batch(indices);
    const torch::Tensor ids = batch.inputs, next = batch.labels;
    std::vector<torch::Tensor> tensors{ids};
    std::vector<std::string> names{ids_name};
    const auto add = [&](const std::string& name, torch::Tensor tensor) {
      if (name.empty()) return;
      names.push_back(name);
      tensors.push_back(std::move(tensor));
    };
    add(mask_name, torch::ones_like(ids));
    add(label_name, shifts_labels ? ids : next);
    return {
        .inputs = etude::Tensors(std::move(tensors), std::move(names)), .labels = {}, .size = ids.size(0)};
  }

  etude::TokenWindows windows;
  std::string ids_name, mask_name, label_name;  // the last two may be empty
  bool shifts_labels;                           ///< the model compares each score with the next label
};

/// Images with their classes, for a model that takes inputs by name.
struct NamedImages {
  std::size_t size() const { return images.size(); }
  std::string fingerprint() const { return images.fingerprint(); }
  std::map<std::string, torch::Tensor> get(std::size_t index, torch::Generator& generator) const {
    auto [pixels, label] = images.get(index, generator);
    std::map<std::string, torch::Tensor> fields{{pixels_name, std::move(pixels)}};
    if (!label_name.empty()) fields.emplace(label_name, torch::tensor(label, torch::kLong));
    return fields;
  }

  etude::ImageFolder images;
  std::string pixels_name, label_name;  // the last may be empty
};

std::vector<double> numbers_of(const nlohmann::json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array()) return {};
  std::vector<double> numbers;
  for (const auto& each : *found)
    if (each.is_number()) numbers.push_back(each.get<double>());
  return numbers;
}

}  // namespace

std::vector<std::string> saved_class_names(const fs::path& path) {
  if (path.empty()) return {};
  const auto name = (fs::is_directory(path) ? path : path.parent_path()) / class_file;
  std::ifstream file(name, std::ios::binary);
  if (!file) return {};
  try {
    return nlohmann::json::parse(file).get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    throw etude::DataError(fmt::format("{}: must be a list of the names of classes", name.string()));
  }
}

DatasetReader::DatasetReader(etude::ExportedModule model, DataArguments args,
                             std::vector<std::string> label_names, LabelKind label_kind,
                             std::vector<std::string> class_names)
    : model_(std::move(model)),
      args_(std::move(args)),
      label_names_(std::move(label_names)),
      label_kind_(label_kind),
      class_names_(std::move(class_names)) {
  for (auto& input : model_->inputs()) (is_label(input.name) ? labels_ : inputs_).push_back(std::move(input));
}

bool DatasetReader::is_label(std::string_view name) const { return contains(label_names_, name); }

std::string DatasetReader::label_field() const {
  return label_kind_ == LabelKind::unused ? "" : label_names_.front();
}

const Input& DatasetReader::only_input(const std::string& what) const {
  if (inputs_.size() == 1) return inputs_.front();
  throw etude::DataError(fmt::format("{} has one input for a model, but this one takes {}", what,
                                     fmt::join(model_->input_names(), ", ")));
}

etude::Dataset DatasetReader::read(const std::vector<std::string>& paths, ImageAugmentation augmentation) {
  std::vector<etude::Dataset> parts;
  std::map<fs::path, std::vector<fs::path>> arrays;  // by folder
  for (const fs::path path : paths) {
    if (path.extension() == ".npy")
      arrays[path.parent_path()].push_back(path);
    else
      parts.push_back(read_one(path, augmentation));
  }
  for (const auto& [folder, files] : arrays) parts.push_back(read_arrays(files));
  return parts.size() == 1 ? parts.front() : etude::concatenated(std::move(parts));
}

etude::EvalDatasets DatasetReader::read_named(const std::vector<std::string>& words) {
  std::map<std::string, std::vector<std::string>> by_name;
  for (const auto& word : words) {
    const auto equals = word.find('=');
    const bool has_name = equals != word.npos && word.find('/') > equals;
    by_name[has_name ? word.substr(0, equals) : ""].push_back(has_name ? word.substr(equals + 1) : word);
  }
  if (by_name.empty()) return {};
  if (by_name.size() == 1 && by_name.contains("")) return read(by_name.at(""));
  if (by_name.contains(""))
    throw etude::ArgumentError(
        fmt::format("eval_dataset has '{}' without a name: must be NAME=PATH, as others have names",
                    by_name.at("").front()));
  std::map<std::string, etude::Dataset> datasets;
  for (const auto& [name, paths] : by_name) datasets.emplace(name, read(paths));
  return datasets;
}

etude::Dataset DatasetReader::read_one(const fs::path& path, const ImageAugmentation& augmentation) {
  if (!fs::exists(path))
    throw etude::DataError(fmt::format("{}: there is no such file or folder", path.string()));
  if (fs::is_directory(path)) {
    std::vector<fs::path> arrays;
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".npy") arrays.push_back(entry.path());
    return arrays.empty() ? read_images(path, augmentation) : read_arrays(std::move(arrays));
  }
  const auto kind = path.extension();
  if (kind == ".safetensors") {
    if (class_names_.empty()) class_names_ = saved_class_names(path);
    return fields(etude::stored_tensors(path), path.string());
  }
  if (kind == ".bin") return read_tokens(path, args_.token_type);
  if (kind == ".txt") return read_tokens(path, etude::TokenType::uint8);
  if (kind == ".csv") return read_table(path);
  throw etude::DataError(
      fmt::format("{}: data must be .safetensors, .npy, .bin (tokens), .txt or .csv files, or a folder of "
                  "images by class",
                  path.string()));
}

etude::Dataset DatasetReader::read_arrays(std::vector<fs::path> paths) const {
  std::ranges::sort(paths);
  std::vector<torch::Tensor> tensors;
  std::vector<std::string> names;
  for (const auto& path : paths) {
    tensors.push_back(etude::load_npy(path));
    names.push_back(path.stem());
  }
  return fields({std::move(tensors), std::move(names)}, (paths.front().parent_path() / "*.npy").string());
}

/// Converts real numbers to the model's precision, since NumPy's are float64.
torch::Tensor DatasetReader::as_model_takes(const std::string& name, const torch::Tensor& tensor) const {
  for (const auto* inputs : {&inputs_, &labels_})
    for (const auto& input : *inputs)
      if (input.name == name && at::isFloatingType(input.dtype) && tensor.is_floating_point())
        return tensor.to(input.dtype);
  return tensor;
}

etude::Dataset DatasetReader::fields(etude::Tensors tensors, const std::string& where) const {
  std::vector<std::string> names = tensors.names();
  // Hugging Face's datasets use the name "label"; transformers' collators rename it, too.
  if (label_names_.front() == "labels" && !contains(names, "labels") && !contains(args_.columns, "label"))
    std::ranges::replace(names, std::string("label"), std::string("labels"));
  const auto taken = model_->input_names();
  std::vector<torch::Tensor> chosen;
  std::vector<std::string> chosen_names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (is_label(names[i])) {
      if (label_kind_ == LabelKind::unused) continue;
    } else {
      if (!args_.columns.empty() && !contains(args_.columns, names[i])) continue;
      if (!contains(taken, names[i]))
        throw etude::DataError(
            fmt::format("{}: '{}' is no input of the model, which takes {}{}; choose fields with --columns",
                        where, names[i], fmt::join(taken, ", "), etude::did_you_mean(names[i], taken)));
    }
    chosen.push_back(as_model_takes(names[i], tensors[i]));
    chosen_names.push_back(names[i]);
  }
  for (const auto& column : args_.columns)
    if (!contains(names, column))
      throw etude::DataError(fmt::format("{}: there is no '{}': it has {}{}", where, column,
                                         fmt::join(names, ", "), etude::did_you_mean(column, names)));
  try {
    return etude::Tensors(std::move(chosen), std::move(chosen_names));
  } catch (const etude::DataError& error) {
    throw etude::DataError(fmt::format("{}: {}", where, error.what()));
  }
}

etude::Dataset DatasetReader::read_table(const fs::path& path) {
  if (args_.delimiter.size() != 1)
    throw etude::ArgumentError(fmt::format("delimiter is '{}': must be one character", args_.delimiter));
  const etude::CsvTable table(path, {.delimiter = args_.delimiter.front()});
  const auto missing = [&](const std::string& column) {
    return etude::DataError(fmt::format("{}: there is no column '{}': it has {}{}", path.string(), column,
                                        fmt::join(table.names(), ", "),
                                        etude::did_you_mean(column, table.names())));
  };
  auto label = args_.label_column;
  if (label.empty())
    label = contains(table.names(), label_names_.front()) ? label_names_.front() : "label";
  else if (!contains(table.names(), label) && !labels_may_be_missing_)
    throw missing(label);

  auto features = args_.columns;
  if (features.empty())
    std::ranges::copy_if(table.names(), std::back_inserter(features),
                         [&](const auto& name) { return name != label; });
  for (const auto& name : features)
    if (!contains(table.names(), name)) throw missing(name);

  std::vector<torch::Tensor> tensors;
  std::vector<std::string> names;
  const auto dtype_of = [](const Input& input) {
    return at::isFloatingType(input.dtype) ? torch::kFloat : torch::kLong;
  };
  const auto as_many_dimensions = [](torch::Tensor column, const Input& input) {
    return input.sizes.size() == 2 ? column.unsqueeze(1) : column;
  };
  const auto taken = model_->input_names();
  if (std::ranges::all_of(features, [&](const auto& name) { return contains(taken, name); })) {
    for (const auto& input : inputs_)
      if (contains(features, input.name)) {
        tensors.push_back(as_many_dimensions(table.column(input.name, dtype_of(input)), input));
        names.push_back(input.name);
      }
  } else {
    const auto& input =
        only_input(fmt::format("{}, whose columns aren't named as the model's inputs,", path.string()));
    if (input.sizes.size() == 2 && input.sizes[1] >= 0 && input.sizes[1] != std::ssize(features))
      throw etude::DataError(fmt::format(
          "{}: {} columns besides the label ({}), but the model's {} has {}: choose with --columns",
          path.string(), features.size(), fmt::join(features, ", "), input.name, input.sizes[1]));
    tensors.push_back(table.columns(features, dtype_of(input)));
    names.push_back(input.name);
  }
  if (contains(table.names(), label) && label_kind_ != LabelKind::unused) {
    torch::Tensor labels;
    if (label_kind_ == LabelKind::numbers) {
      labels = table.column(label);
    } else {
      if (class_names_.empty()) {
        try {
          labels = table.column(label, torch::kLong);
        } catch (const etude::DataError&) {
          class_names_ = table.categories(label);
        }
      }
      if (!labels.defined()) labels = table.codes(label, class_names_);
    }
    tensors.push_back(labels_.empty() ? labels : as_many_dimensions(labels, labels_.front()));
    names.push_back(label_names_.front());
  }
  return etude::Tensors(std::move(tensors), std::move(names));
}

etude::Dataset DatasetReader::read_tokens(const fs::path& path, etude::TokenType type) const {
  std::string ids, mask;
  for (const auto& input : inputs_) {
    if (input.name == "attention_mask")
      mask = input.name;
    else if (ids.empty())
      ids = input.name;
    else
      throw etude::DataError(fmt::format("{}: a file of tokens has {}, but the model also takes {}",
                                         path.string(), ids, input.name));
  }
  const bool shifts = !labels_.empty() && (model_->loss_items() == etude::LossItems::shifted_labels ||
                                           model_->files().contains("config.json"));
  return NamedWindows{{path, {.context = args_.context, .stride = args_.stride, .type = type}},
                      ids,
                      mask,
                      label_field(),
                      shifts};
}

etude::Dataset DatasetReader::read_images(const fs::path& path, const ImageAugmentation& augmentation) {
  const auto& input = only_input(path.string());
  if (input.sizes.size() != 4)
    throw etude::DataError(
        fmt::format("{}: the model's {} has {} dimensions, but images have 4: batch, channels, height, width",
                    path.string(), input.name, input.sizes.size()));
  auto size = [&](std::size_t dimension) {
    if (input.sizes[dimension] >= 0) return input.sizes[dimension];
    if (args_.image_size) return *args_.image_size;
    throw etude::ArgumentError(
        "image_size is not given: must be the height and width of images, since the model takes any");
  };
  etude::ImageFolderOptions options{.height = size(2), .width = size(3)};
  if (input.sizes[1] >= 0) options.channels = input.sizes[1];
  options.mean = args_.image_mean;
  options.std = args_.image_std;
  if (const auto file = model_->files().find("preprocessor_config.json"); file != model_->files().end()) {
    const auto config = nlohmann::json::parse(file->second, nullptr, false);
    if (config.is_object() && config.value("do_normalize", true)) {
      if (options.mean.empty()) options.mean = numbers_of(config, "image_mean");
      if (options.std.empty()) options.std = numbers_of(config, "image_std");
    }
  }
  options.random_resized_crop = augmentation.random_resized_crop;
  options.random_flip = augmentation.random_flip;
  options.classes = class_names_;
  etude::ImageFolder images(path, options);
  class_names_ = images.classes();
  return NamedImages{std::move(images), input.name, label_field()};
}

}  // namespace tool
