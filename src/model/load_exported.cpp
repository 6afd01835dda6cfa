#include "etude/model/load_exported.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/formats/exported_json.hpp"
#include "etude/formats/pt2_archive.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/model/exported_compiled.hpp"
#include "etude/model/exported_program.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

ExportedProgram load_program(const Pt2Archive& archive, const std::string& model,
                             Pt2Archive::NamedTensors& tensors) {
  auto program = read_program(archive.graph(model), fmt::format("{}: models/{}.json", archive.name(), model));
  auto constants = archive.constants(model);
  for (const auto& state : program.states) {
    const auto found = constants.find(state.name);
    if (found == constants.end()) continue;
    (state.kind == ExportedState::Kind::constant ? program.constants : tensors).emplace(*found);
  }
  return program;
}

LossItems loss_items_of(const ExportedJson& json, std::string_view where) {
  const auto& items = exported_text(json, where);
  if (items == "labels") return LossItems::labels;
  if (items == "shifted_labels") return LossItems::shifted_labels;
  throw exported_fault(where, "loss_items is {}: must be labels or shifted_labels", printable(items));
}

std::map<std::string, std::string> names_of(const ExportedJson& json, std::string_view where) {
  if (!json.is_object()) throw exported_fault(where, "a list of names isn't an object");
  std::map<std::string, std::string> names;
  for (const auto& [name, other] : json.items()) names.emplace(name, exported_text(other, where));
  return names;
}

/// Reads the notes that tools/export.py writes about a model, and removes them from its files.
void take_notes(ExportedModuleImpl::Content& content) {
  const auto file = content.files.extract("etude.json");
  if (!file) return;
  const auto where = fmt::format("{}: extra/etude.json", content.name);
  const auto json = exported_json(file.mapped(), where);
  if (!json.is_object()) throw exported_fault(where, "it isn't an object");
  if (const auto items = json.find("loss_items"); items != json.end())
    content.loss_items = loss_items_of(*items, where);
  if (const auto tied = json.find("tied"); tied != json.end()) content.tied = names_of(*tied, where);
  if (const auto adapter = json.find("adapter"); adapter != json.end())
    content.adapter = names_of(*adapter, where);
}

}  // namespace

}  // namespace detail

ExportedModule load_exported(const std::filesystem::path& path, const LoadExportedOptions& options) {
  const auto opened = std::make_shared<const Pt2Archive>(path);
  const auto& archive = *opened;
  const auto models = archive.models();
  const auto find = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find_if(models,
                                [&](const auto& model) { return std::ranges::count(names, model) > 0; });
  };
  const auto training = models.size() == 1 ? models.begin() : find({"model", "train"});
  const auto evaluation = models.size() == 1 ? models.end() : find({"eval"});
  if (training == models.end() || models.size() > 2 || (models.size() == 2 && evaluation == models.end()))
    throw CheckpointError(fmt::format("{}: it has the graphs {}: must have one, or model (or train) and eval",
                                      archive.name(), fmt::join(models, ", ")));
  ExportedModuleImpl::Content content{.name = archive.name(),
                                      .training = {},
                                      .evaluation = nullptr,
                                      .tensors = archive.weights(*training),
                                      .files = archive.extra_files(),
                                      .archive = opened};
  detail::take_notes(content);
  content.training = detail::load_program(archive, *training, content.tensors);
  if (evaluation != models.end())
    content.evaluation = std::make_shared<detail::ExportedProgram>(
        detail::load_program(archive, *evaluation, content.tensors));
  else
    detail::follow_mode(content.training);
  if (options.run_compiled_code) content.compiled = std::make_shared<detail::CompiledGraphs>(opened);
  return ExportedModule(std::make_shared<ExportedModuleImpl>(std::move(content)));
}

}  // namespace etude::inline v0
