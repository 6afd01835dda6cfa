#include "etude/callbacks/predictions_to_csv.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/formats/csv_text.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// A batch's tensors as a table: a row per example, a column per number.
class CsvColumns {
 public:
  CsvColumns(const Tensors& tensors, std::int64_t size, std::string_view title, bool only_largest) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      auto table = tensors[i].detach();
      if (table.numel() == 1 && table.dim() < 2)
        table = table.reshape({1}).expand({size});  // one value for the whole batch
      if (table.size(0) != size || !tensors.is_row_per_example(i))
        throw DataError(fmt::format("{} {} is {} in a batch of {} examples: must have one row for each",
                                    title, tensors.title(i), describe(tensors[i]), size));
      table = table.reshape({size, -1});
      if (only_largest && table.size(1) > 1) table = table.argmax(1, /*keepdim=*/true);
      auto name = std::string(title);
      if (tensors.size() > 1)
        name += "_" + (tensors.names().empty() ? std::to_string(i) : tensors.names()[i]);
      const auto columns = table.size(1);
      for (std::int64_t k = 0; k < columns; ++k)
        names_.push_back(columns == 1 ? name : fmt::format("{}_{}", name, k));
      const auto type = !table.is_floating_point()              ? torch::kLong
                        : table.scalar_type() == torch::kDouble ? torch::kDouble
                                                                : torch::kFloat;
      tables_.push_back(table.to(torch::kCPU, type).contiguous());
    }
  }

  const std::vector<std::string>& names() const { return names_; }

  void write(std::int64_t row, fmt::memory_buffer& out) const {
    const auto write = [&](auto value) { fmt::format_to(std::back_inserter(out), "{},", value); };
    for (const auto& table : tables_) {
      const auto first = row * table.size(1);
      for (auto k = first; k < first + table.size(1); ++k) {
        if (table.scalar_type() == torch::kLong)
          write(table.data_ptr<std::int64_t>()[k]);
        else if (table.scalar_type() == torch::kDouble)
          write(without_sign_of_nan(table.data_ptr<double>()[k]));
        else
          write(without_sign_of_nan(table.data_ptr<float>()[k]));
      }
    }
  }

 private:
  std::vector<std::string> names_;
  std::vector<torch::Tensor> tables_;
};

std::string filled_in(std::string text, std::string_view placeholder, std::string_view value) {
  for (auto at = text.find(placeholder); at != text.npos; at = text.find(placeholder, at + value.size()))
    text.replace(at, placeholder.size(), value);
  return text;
}

}  // namespace

}  // namespace detail

void PredictionsToCSVCallback::begin(const Context& e, std::string_view prefix) {
  is_whole = false;
  columns.clear();
  batches.clear();
  is_divided = e.eval_dataloader->dataset().is_divided();
  is_part = e.args.world_size() > 1 &&
            (is_divided || e.eval_dataloader->options().part.world_size == e.args.world_size());
  if (!e.state.is_world_process_zero) return;
  file = detail::log_path(e.args, detail::filled_in(detail::filled_in(path, "{prefix}", prefix), "{step}",
                                                    std::to_string(e.state.global_step)));
  partial =
      file.parent_path() / fmt::format(".{}.{}.partial", file.filename().string(), detail::random_name());
  auto& files = e.trainer.options().files();
  files.create_directories(file.parent_path());
  output = files.create(partial);
}

void PredictionsToCSVCallback::on(const PredictionStep& e) {
  if (!output && !is_part) return;
  const detail::CsvColumns predictions(e.output, e.batch.size, "prediction", predicted_class),
      targets(e.batch.labels, e.batch.size, "target", false);
  auto names = predictions.names();
  names.insert(names.end(), targets.names().begin(), targets.names().end());
  fmt::memory_buffer text;
  if (columns.empty()) {
    columns = names;
    if (!is_part) write_header();
  } else if (columns != names) {
    throw DataError(fmt::format("{} has the columns {}, but a later batch has {}", file.string(),
                                fmt::join(columns, ","), fmt::join(names, ",")));
  }
  for (std::int64_t row = 0; row < e.batch.size; ++row) {
    predictions.write(row, text);
    targets.write(row, text);
    text[text.size() - 1] = '\n';
  }
  if (is_part)
    batches.push_back(fmt::to_string(text));
  else
    output->write(std::as_bytes(std::span(text.data(), text.size())));
}

void PredictionsToCSVCallback::write_header() {
  auto names = columns;
  for (auto& name : names) name = detail::csv_field(name);
  const auto text = detail::csv_record(names) + '\n';
  output->write(std::as_bytes(std::span(text)));
}

void PredictionsToCSVCallback::finish(const Context& e) {
  if (is_part) {
    const auto all = e.trainer.communicator().gather_bytes(nlohmann::json{columns, batches}.dump());
    if (std::ssize(all) < e.args.world_size())
      return;  // This process no longer communicates with the others.
    if (output) write_parts(all);
  }
  is_whole = true;
}

void PredictionsToCSVCallback::write_parts(const std::vector<std::string>& all) {
  std::vector<std::vector<std::string>> parts;
  std::size_t most = 0;
  for (const auto& text : all) {
    const auto part = nlohmann::json::parse(text);
    const auto names = part[0].get<std::vector<std::string>>();
    parts.push_back(part[1].get<std::vector<std::string>>());
    most = std::max(most, parts.back().size());
    if (columns.empty()) columns = names;
    if (!names.empty() && names != columns)
      throw DataError(fmt::format("{} has the columns {}, but another process has {}", file.string(),
                                  fmt::join(columns, ","), fmt::join(names, ",")));
  }
  write_header();
  if (is_divided) {
    for (const auto& part : parts)
      for (const auto& batch : part) output->write(std::as_bytes(std::span(batch)));
    return;
  }
  // A process may have no examples of the last batch.
  for (std::size_t batch = 0; batch < most; ++batch)
    for (const auto& part : parts)
      if (batch < part.size()) output->write(std::as_bytes(std::span(part[batch])));
}

void PredictionsToCSVCallback::end(const Context& e) {
  const auto written = std::move(output);
  if (!written) return;
  auto& files = e.trainer.options().files();
  if (!is_whole) return files.remove_all(partial);
  try {
    written->finish();
    files.rename(partial, file);
  } catch (const CheckpointError&) {
    files.remove_all(partial);
    throw;
  }
  files.sync(file.parent_path());
}

}  // namespace etude::inline v0
