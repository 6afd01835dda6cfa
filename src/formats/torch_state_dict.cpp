#include "etude/formats/torch_state_dict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace etude::inline v0 {

std::uint64_t TorchTensorRecord::bytes() const {
  auto result = item_size;
  for (const auto size : sizes) result *= static_cast<std::uint64_t>(size);
  return result;
}

}  // namespace etude::inline v0

namespace etude::inline v0::detail {

TorchStateDict TorchStateDictReader::read(Id root, std::string_view key, bool may_be_empty) {
  if (!is_container(root))
    throw fault("{} isn't a dict of tensors", key.empty() ? "what it holds" : in_quotes(key));
  const bool is_empty = children(document_[root]).empty();
  if (!has_tensors_[root] && !(may_be_empty && is_empty))
    throw fault("{} holds no tensors", key.empty() ? "it" : in_quotes(key));
  collect(root, "");
  return std::move(result_);
}

bool TorchStateDictReader::is_tensor(Id id) const {
  const auto* call = get<pickle::Call>(id);
  if (!call) return false;
  const auto name = get<pickle::Global>(call->function_and_arguments[0])->name;
  return std::ranges::find(torch_rebuilders, name, &TorchRebuilder::name) != torch_rebuilders.end();
}

void TorchStateDictReader::spend(std::uint64_t amount) {
  if (amount > budget_) throw fault("its pickle repeats values too often");
  budget_ -= amount;
}

void TorchStateDictReader::mark_tensors() {
  has_tensors_.assign(document_.values.size(), false);
  seen_.assign(document_.values.size(), false);
  mark_tensors(document_.root);
}

bool TorchStateDictReader::mark_tensors(Id id) {
  if (seen_[id]) return has_tensors_[id];
  seen_[id] = true;
  bool found = is_tensor(id);
  if (is_container(id)) {
    for (const auto child : children(document_[id])) found |= mark_tensors(child);
  }
  return has_tensors_[id] = found;
}

std::vector<TorchStateDictReader::Entry> TorchStateDictReader::entries(Id id) {
  const auto& items = children(document_[id]);
  std::vector<Entry> result;
  if (!get<pickle::Dict>(id)) {
    for (std::size_t i = 0; i < items.size(); ++i) result.push_back({std::to_string(i), items[i]});
    spend(items.size() * sizeof(Entry));
    return result;
  }
  std::set<std::string_view> keys;
  result.reserve(items.size() / 2);
  for (std::size_t i = 0; i < items.size(); i += 2) {
    std::string key;
    if (const auto* text = get<pickle::Text>(items[i])) {
      key = text->utf8;
    } else if (const auto* number = get<std::int64_t>(items[i])) {
      key = std::to_string(*number);
    } else if (has_tensors_[items[i + 1]]) {
      throw fault("a dict of tensors has a key that is neither text nor a whole number");
    } else {
      key = "(a key that is neither text nor a whole number)";
      spend(sizeof(Entry) + key.size());
      result.push_back({std::move(key), items[i + 1]});
      continue;
    }
    spend(sizeof(Entry) + key.size());
    result.push_back({std::move(key), items[i + 1]});
    if (!keys.insert(result.back().key).second) throw fault("{} appears twice", in_quotes(result.back().key));
  }
  return result;
}

std::string TorchStateDictReader::listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 20; ++i) text += (i == 0 ? "" : ", ") + in_quotes(names[i]);
  return names.size() > 20 ? fmt::format("{} and {} more", text, names.size() - 20) : text;
}

TorchStateDictReader::Id TorchStateDictReader::only_dict_of_tensors() {
  const auto root = document_.root;
  if (!is_container(root)) return root;
  std::vector<Entry> dicts;
  for (auto& entry : entries(root)) {
    if (is_tensor(entry.value)) return root;
    if (has_tensors_[entry.value]) dicts.push_back(std::move(entry));
  }
  if (dicts.size() == 1) return dicts[0].value;
  if (dicts.empty()) return root;
  std::vector<std::string> names;
  for (const auto& dict : dicts) names.push_back(dict.key);
  throw fault("several of its entries contain tensors: {}; specify the key of one", listed(names));
}

TorchStateDictReader::Id TorchStateDictReader::find(std::string_view key) {
  auto id = document_.root;
  for (auto rest = key;;) {
    std::vector<std::string> names;
    const Entry* next = nullptr;
    const auto here = is_container(id) ? entries(id) : std::vector<Entry>{};
    for (const auto& entry : here) {
      if (has_tensors_[entry.value]) names.push_back(entry.key);
      if (entry.key == rest) return entry.value;
      if (!next && rest.starts_with(entry.key) && rest[entry.key.size()] == '.') next = &entry;
    }
    if (!next) throw fault("{} doesn't exist; entries with tensors are: {}", in_quotes(key), listed(names));
    rest.remove_prefix(next->key.size() + 1);
    id = next->value;
  }
}

void TorchStateDictReader::collect(Id id, const std::string& prefix) {
  for (const auto& [key, value] : entries(id)) {
    const auto name = prefix + key;
    spend(name.size());
    if (is_tensor(value)) {
      if (!names_.insert(name).second) throw fault("tensor {}: the name is duplicate", in_quotes(name));
      result_.tensors.push_back(tensor(value, name));
    } else if (has_tensors_[value]) {
      collect(value, name + ".");
    } else {
      result_.skipped.push_back(printable(name));
    }
  }
}

TorchTensorRecord TorchStateDictReader::tensor(Id id, const std::string& name) {
  const auto bad = [&](std::string_view what) { return fault("tensor {}: {}", in_quotes(name), what); };
  if (!is_utf8(name)) throw bad("its name isn't UTF-8");
  const auto* call = get<pickle::Call>(id);
  auto function = call->function_and_arguments[0];
  const auto* arguments = get<pickle::Tuple>(call->function_and_arguments[1]);
  for (;;) {
    const auto made_by = get<pickle::Global>(function)->name;
    const auto* known = std::ranges::find(torch_rebuilders, made_by, &TorchRebuilder::name);
    if (known == torch_rebuilders.end()) throw bad("it is built by a function that doesn't build tensors");
    if (!known->unreadable.empty()) {
      throw bad(fmt::format("it is {}; only dense tensors can be read", known->unreadable));
    }
    const auto& items = arguments->items;
    if (made_by == "torch._utils._rebuild_tensor_v2") return record(name, items, bad, false);
    if (made_by == "torch._utils._rebuild_tensor_v3") return record(name, items, bad, true);
    if (made_by == "torch._tensor._rebuild_from_type_v2") {
      // The items are the function, the class, the arguments and the attributes.
      const auto* type = items.size() == 4 ? get<pickle::Global>(items[1]) : nullptr;
      const auto* inner = items.size() == 4 ? get<pickle::Tuple>(items[2]) : nullptr;
      if (!type || !inner || !get<pickle::Global>(items[0]) ||
          (type->name != "torch.Tensor" && type->name != "torch.nn.parameter.Parameter")) {
        throw bad("it is of a custom tensor class; only dense tensors can be read");
      }
      function = items[0];
      arguments = inner;
    } else {  // a parameter, which wraps a tensor
      const auto* inner = items.empty() || !is_tensor(items[0]) ? nullptr : get<pickle::Call>(items[0]);
      if (!inner) throw bad("it is a parameter without a tensor");
      function = inner->function_and_arguments[0];
      arguments = get<pickle::Tuple>(inner->function_and_arguments[1]);
    }
  }
}

const TorchDtype* TorchStateDictReader::find_dtype(std::string_view TorchDtype::*field,
                                                   std::string_view name) {
  const auto* found = std::ranges::find(torch_dtypes, name, field);
  return found == torch_dtypes.end() ? nullptr : found;
}

}  // namespace etude::inline v0::detail
