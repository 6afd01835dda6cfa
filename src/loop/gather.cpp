#include "etude/loop/gather.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <variant>

#include "etude/base/error.hpp"
#include "etude/data/batch.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// The tensors of a prediction, one after another.
std::vector<torch::Tensor> all_tensors(const EvalPrediction& prediction) {
  std::vector<torch::Tensor> columns;
  for (const auto* tensors : {&prediction.predictions, &prediction.label_ids, &prediction.inputs})
    for (const auto& tensor : *tensors) columns.push_back(tensor);
  if (prediction.losses.defined()) columns.push_back(prediction.losses);
  return columns;
}

/// Returns the indices of the rows, in the order of the batches, within the concatenated tensors of all
/// processes, each of which has room for `most` rows. If `is_shared`, takes each batch only from the first
/// process that has rows of it.
torch::Tensor places_in_order(const std::vector<std::vector<std::int64_t>>& rows, std::int64_t most,
                              bool is_shared) {
  std::vector<std::int64_t> places, next(rows.size());
  std::size_t batches = 0;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    next[rank] = static_cast<std::int64_t>(rank) * most;
    batches = std::max(batches, rows[rank].size());
  }
  for (std::size_t batch = 0; batch < batches; ++batch) {
    bool has_rows = false;
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      if (batch >= rows[rank].size()) continue;
      const bool counts = !is_shared || !has_rows;
      for (std::int64_t row = 0; row < rows[rank][batch]; ++row, ++next[rank])
        if (counts) places.push_back(next[rank]);
      has_rows = has_rows || rows[rank][batch] > 0;
    }
  }
  return torch::tensor(places, torch::kLong);
}

/// Copies the part to the start of each dimension of `place`, and fills the rest with -100.
void copy_into(torch::Tensor place, const torch::Tensor& part) {
  if (place.sizes() != part.sizes()) place.fill_(-100);
  for (std::int64_t d = 0; d < part.dim(); ++d) place = place.narrow(d, 0, part.size(d));
  place.copy_(part);
}

/// Gathers one tensor from all processes, with its rows in order. `headers` are the descriptions that the
/// processes exchange in `gather_rows`.
torch::Tensor gather_column(Communicator& communicator, const torch::Tensor& own, bool is_shared,
                            const std::vector<nlohmann::json>& headers, std::size_t column) {
  std::vector<std::vector<std::int64_t>> rows;
  std::vector<std::int64_t> sizes;
  auto dtype = own.scalar_type();
  for (const auto& header : headers) {
    const auto& of = header["columns"][column];
    const auto here = of["sizes"].get<std::vector<std::int64_t>>();
    if (sizes.empty()) sizes = here;
    if (here.size() != sizes.size())
      throw DataError(fmt::format("the processes have predictions with {} and with {} dimensions",
                                  sizes.size(), here.size()));
    for (std::size_t d = 0; d < sizes.size(); ++d) sizes[d] = std::max(sizes[d], here[d]);
    dtype = c10::promoteTypes(dtype, static_cast<torch::ScalarType>(of["dtype"].get<int>()));
    rows.push_back(of["rows"].get<std::vector<std::int64_t>>());
  }
  const bool is_whole = own.sizes() == torch::IntArrayRef(sizes) && own.scalar_type() == dtype;
  const auto padded = is_whole ? own.contiguous() : torch::empty(sizes, own.options().dtype(dtype));
  if (!is_whole) copy_into(padded, own);
  if (padded.numel() == 0) return padded;
  const auto most = sizes[0];
  sizes[0] *= communicator.world_size();
  // Gathers bytes, since not every backend knows every dtype.
  const auto all =
      communicator.gather(padded.view({-1}).view(torch::kByte)).view({-1}).view(dtype).view(sizes);
  return all.index_select(0, places_in_order(rows, most, is_shared));
}

/// Returns the number of examples before each batch of `rank`, if all examples are ordered by batch and then
/// by process.
std::vector<std::int64_t> examples_before(const std::vector<std::vector<std::int64_t>>& examples,
                                          std::size_t rank) {
  std::vector<std::int64_t> before;
  std::int64_t sum = 0;
  for (std::size_t batch = 0; batch < examples[rank].size(); ++batch)
    for (std::size_t r = 0; r < examples.size(); ++r) {
      if (r == rank) before.push_back(sum);
      if (batch < examples[r].size()) sum += examples[r][batch];
    }
  return before;
}

/// Adds the number of examples before each batch to the example index of each of its rows.
torch::Tensor renumbered(const torch::Tensor& tensor, const RowsByIndex& by,
                         const std::vector<std::int64_t>& before, const std::vector<std::int64_t>& examples,
                         const std::vector<std::int64_t>& rows) {
  const auto repeated = [&](const std::vector<std::int64_t>& each) {
    return torch::tensor(each, torch::kLong).repeat_interleave(torch::tensor(rows, torch::kLong));
  };
  auto result = tensor.clone();
  const auto index = index_of(result, by);
  if (index.lt(0).logical_or(index.ge(repeated(examples))).any().item<bool>())
    throw DataError("RowsByIndex: a row's example is not in its batch");
  const auto all = repeated(before) + index.to(torch::kLong);
  index.copy_(all);
  if (!torch::equal(index.to(torch::kLong), all))
    throw DataError(
        fmt::format("RowsByIndex: {} can't hold the example's number among {}: must be int64 or float64",
                    dtype_name(tensor.scalar_type()), all.max().item<std::int64_t>() + 1));
  return result;
}

/// Makes RowsByIndex count from the first of all examples, and drops other divisions, which no longer hold
/// for joined tensors.
void renumber(EvalPrediction& all, const BatchRows& rows, const std::vector<std::int64_t>& before) {
  std::size_t column = 0;
  for (auto* tensors : {&all.predictions, &all.label_ids, &all.inputs})
    for (std::size_t i = 0; i < tensors->size(); ++i, ++column) {
      if (const auto* by = std::get_if<RowsByIndex>(&tensors->division(i)))
        (*tensors)[i] = renumbered((*tensors)[i], *by, before, rows.examples, rows.columns[column]);
      else if (!tensors->is_row_per_example(i))
        tensors->set_division(i, {});
    }
}

}  // namespace

}  // namespace detail

void BatchRows::add(const EvalPrediction& part, std::int64_t size) {
  const auto tensors = detail::all_tensors(part);
  columns.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) columns[i].push_back(size > 0 ? tensors[i].size(0) : 0);
  examples.push_back(size);
}

BatchRows BatchRows::joined() const {
  const auto sum = [](const std::vector<std::int64_t>& rows) {
    return std::vector{std::accumulate(rows.begin(), rows.end(), std::int64_t{0})};
  };
  BatchRows all{sum(examples), {}};
  for (const auto& column : columns) all.columns.push_back(sum(column));
  return all;
}

BatchRows BatchRows::of(std::size_t batch) const {
  BatchRows one{{examples[batch]}, {}};
  for (const auto& column : columns) one.columns.push_back({column[batch]});
  return one;
}

void check_joins(const EvalPrediction& part, std::int64_t size, bool several_processes) {
  const auto check = [&](const char* kind, const Tensors& tensors, bool may_be_one) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (may_be_one && tensors.is_row_per_example(i) && tensors[i].size(0) == 1) continue;
      auto fault = detail::division_fault(tensors[i], tensors.division(i), size);
      if (std::holds_alternative<RowOffsets>(tensors.division(i))) fault = "RowOffsets can't be joined";
      if (!fault.empty())
        detail::throw_indivisible("the batches of an evaluation or prediction are joined, and ", kind,
                                  tensors, i, size, fault);
    }
  };
  check("label", part.label_ids, false);
  check("input", part.inputs, false);
  if (several_processes) check("output", part.predictions, true);
}

EvalPrediction gather_rows(Communicator& communicator, const EvalPrediction& own, const BatchRows& rows) {
  if (!own.batches.empty()) {
    auto result = own;
    for (std::size_t i = 0; i < own.batches.size(); ++i)
      result.batches[i] = gather_rows(communicator, own.batches[i], rows.of(i));
    return result;
  }
  const auto columns = detail::all_tensors(own);
  nlohmann::json header{{"examples", rows.examples}, {"columns", nlohmann::json::array()}};
  for (std::size_t i = 0; i < columns.size(); ++i)
    header["columns"].push_back({{"sizes", columns[i].sizes().vec()},
                                 {"dtype", static_cast<int>(columns[i].scalar_type())},
                                 {"rows", rows.columns[i]}});
  std::vector<nlohmann::json> headers;
  std::vector<std::vector<std::int64_t>> examples;
  for (const auto& text : communicator.gather_bytes(header.dump())) {
    headers.push_back(nlohmann::json::parse(text));
    examples.push_back(headers.back()["examples"].get<std::vector<std::int64_t>>());
  }
  for (const auto& other : headers)
    if (other["columns"].size() != columns.size())
      throw DataError(fmt::format("the processes have predictions of {} and of {} tensors", columns.size(),
                                  other["columns"].size()));
  auto all = own;
  std::size_t column = 0;
  std::vector<bool> is_shared;
  for (const auto* tensors : {&own.predictions, &own.label_ids, &own.inputs})
    for (std::size_t i = 0; i < tensors->size(); ++i)
      is_shared.push_back(std::holds_alternative<SharedByExamples>(tensors->division(i)));
  is_shared.push_back(false);  // the losses
  detail::renumber(all, rows,
                   detail::examples_before(examples, static_cast<std::size_t>(communicator.rank())));
  const auto gather = [&](const torch::Tensor& tensor) {
    auto gathered = detail::gather_column(communicator, tensor, is_shared[column], headers, column);
    ++column;
    return gathered;
  };
  return detail::transformed(all, gather);
}

EvalPrediction renumbered(EvalPrediction all, const BatchRows& rows) {
  if (all.batches.empty() && !rows.examples.empty())
    detail::renumber(all, rows, detail::examples_before({rows.examples}, 0));
  return all;
}

void GatheredTensor::add(const torch::Tensor& part) {
  const auto rows = detail::at_least_1d(part);
  const auto count = rows.size(0);
  if (!all_.defined()) {
    auto sizes = rows.sizes().vec();
    sizes[0] = std::max(count, expected_);
    all_ = torch::empty(sizes, torch::dtype(rows.scalar_type()));
  }
  make_room_for(rows);
  detail::copy_into(all_.narrow(0, used_, count), rows);
  used_ += count;
}

torch::Tensor GatheredTensor::take() const {
  return all_.defined() && used_ < all_.size(0) ? all_.narrow(0, 0, used_) : all_;
}

void GatheredTensor::make_room_for(const torch::Tensor& rows) {
  if (rows.dim() != all_.dim())
    throw DataError(fmt::format("batches must all have the same number of dimensions, not {} and then {}",
                                etude::describe(all_), etude::describe(rows)));
  auto sizes = all_.sizes().vec();
  if (used_ + rows.size(0) > sizes[0]) sizes[0] = std::max(used_ + rows.size(0), sizes[0] + sizes[0] / 2);
  for (std::size_t d = 1; d < sizes.size(); ++d)
    sizes[d] = std::max(sizes[d], rows.size(static_cast<std::int64_t>(d)));
  const auto dtype = c10::promoteTypes(all_.scalar_type(), rows.scalar_type());
  if (all_.sizes() == torch::IntArrayRef(sizes) && all_.scalar_type() == dtype) return;
  const auto before = all_.narrow(0, 0, used_);
  all_ = torch::empty(sizes, torch::dtype(dtype));
  detail::copy_into(all_.narrow(0, 0, used_), before);
}

Gathered::Gathered(std::optional<std::int64_t> to_cpu_after, bool concatenate,
                   std::optional<std::int64_t> examples)
    : to_cpu_after_(to_cpu_after), concatenate_(concatenate), examples_(examples.value_or(0)) {}

void Gathered::GatheredTensors::add(const Tensors& part, std::int64_t size, std::int64_t examples) {
  if (columns.empty()) first = part;
  if (part.size() != first.size())
    throw DataError(fmt::format("batches must all have the same number of tensors, not {} and then {}",
                                first.size(), part.size()));
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (i == columns.size())
      columns.emplace_back(part[i].dim() > 0 && part[i].size(0) == size ? examples : 0);
    columns[i].add(part[i]);
  }
}

Tensors Gathered::GatheredTensors::take() {
  auto all = std::exchange(first, {});
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = columns[i].take();
  columns.clear();
  return all;
}

void Gathered::add(EvalPrediction part, std::int64_t size) {
  const bool on_cpu = part.predictions.empty() || part.predictions[0].is_cpu();
  waiting_.emplace_back(std::move(part), size);
  if (on_cpu || (to_cpu_after_ && static_cast<std::int64_t>(waiting_.size()) >= *to_cpu_after_)) take_in();
}

EvalPrediction Gathered::take() {
  take_in();
  EvalPrediction all;
  all.predictions = predictions_.take();
  all.label_ids = label_ids_.take();
  all.inputs = inputs_.take();
  all.losses = losses_.take();
  all.batches = std::move(batches_);
  return all;
}

void Gathered::take_in() {
  for (auto& [part, size] : std::exchange(waiting_, {})) {
    if (!concatenate_) {
      batches_.push_back(detail::transformed(part, detail::on_cpu));
      continue;
    }
    predictions_.add(part.predictions, size, examples_);
    label_ids_.add(part.label_ids, size, examples_);
    inputs_.add(part.inputs, size, examples_);
    if (part.losses.defined()) losses_.add(part.losses);
  }
}

}  // namespace etude::inline v0
