#include "etude/formats/torch_state_dict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/utf8.hpp"
#include "etude/formats/pickle_document.hpp"
#include "etude/formats/torch_names.hpp"
#include "etude/io/entry_name.hpp"

namespace etude::inline v0 {

std::uint64_t TorchTensorRecord::bytes() const {
  auto result = item_size;
  for (const auto size : sizes) result *= static_cast<std::uint64_t>(size);
  return result;
}

}  // namespace etude::inline v0

namespace etude::inline v0::detail {

namespace {

/// Finds the tensors in a pickle and validates their descriptions.
class TorchStateDictReader {
 public:
  TorchStateDictReader(const pickle::Document& document, std::size_t pickle_bytes, std::string_view source)
      : document_(document),
        budget_((std::uint64_t{1} << 20) + 100 * std::uint64_t{pickle_bytes}),
        source_(source) {
    mark_tensors();
  }

  TorchStateDict read(std::string_view key) {
    return read(key.empty() ? only_dict_of_tensors() : find(key), key);
  }

  TorchStateDict read_all() { return read(document_.root, {}, /*may_be_empty=*/true); }

 private:
  using Id = pickle::Id;
  struct Entry {
    std::string key;
    Id value;
  };

  TorchStateDict read(Id root, std::string_view key, bool may_be_empty = false) {
    if (!is_container(root))
      throw fault("{} isn't a dict of tensors", key.empty() ? "what it holds" : in_quotes(key));
    const bool is_empty = children(document_[root]).empty();
    if (!has_tensors_[root] && !(may_be_empty && is_empty))
      throw fault("{} holds no tensors", key.empty() ? "it" : in_quotes(key));
    collect(root, "");
    return std::move(result_);
  }

  template <class... Args>
  CheckpointError fault(fmt::format_string<Args...> text, Args&&... args) const {
    return CheckpointError(fmt::format("{}: ", source_) + fmt::format(text, std::forward<Args>(args)...));
  }

  // An error about the tensor that is being read.
  template <class... Args>
  CheckpointError bad(fmt::format_string<Args...> text, Args&&... args) const {
    return fault("tensor {}: {}", in_quotes(tensor_), fmt::format(text, std::forward<Args>(args)...));
  }

  template <class T>
  const T* get(Id id) const {
    return document_.get<T>(id);
  }
  bool is_container(Id id) const {
    return get<pickle::Dict>(id) || get<pickle::List>(id) || get<pickle::Tuple>(id);
  }
  bool is_tensor(Id id) const {
    const auto* call = get<pickle::Call>(id);
    if (!call) return false;
    const auto name = get<pickle::Global>(call->function_and_arguments[0])->name;
    return std::ranges::find(torch_rebuilders, name, &TorchRebuilder::name) != torch_rebuilders.end();
  }

  // Limits the work done: values may be shared, so a few bytes can describe a great deal.
  void spend(std::uint64_t amount) {
    if (amount > budget_) throw fault("its pickle repeats values too often");
    budget_ -= amount;
  }

  void mark_tensors() {
    has_tensors_.assign(document_.values.size(), false);
    seen_.assign(document_.values.size(), false);
    mark_tensors(document_.root);
  }
  bool mark_tensors(Id id) {
    if (seen_[id]) return has_tensors_[id];
    seen_[id] = true;
    bool found = is_tensor(id);
    if (is_container(id)) {
      for (const auto child : children(document_[id])) found |= mark_tensors(child);
    }
    return has_tensors_[id] = found;
  }

  // The named entries of a dict, a list or a tuple.
  std::vector<Entry> entries(Id id) {
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
      if (!keys.insert(result.back().key).second)
        throw fault("{} appears twice", in_quotes(result.back().key));
    }
    return result;
  }

  static std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size() && i < 20; ++i)
      text += (i == 0 ? "" : ", ") + in_quotes(names[i]);
    return names.size() > 20 ? fmt::format("{} and {} more", text, names.size() - 20) : text;
  }

  Id only_dict_of_tensors() {
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

  // Keys may themselves contain dots.
  Id find(std::string_view key) {
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

  // The document's max_depth limits this recursion.
  void collect(Id id, const std::string& prefix) {
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

  TorchTensorRecord tensor(Id id, const std::string& name) {
    tensor_ = name;
    if (!is_utf8(name)) throw bad("its name isn't UTF-8");
    const auto* call = get<pickle::Call>(id);
    auto function = call->function_and_arguments[0];
    const auto* arguments = get<pickle::Tuple>(call->function_and_arguments[1]);
    for (;;) {
      const auto made_by = get<pickle::Global>(function)->name;
      const auto* known = std::ranges::find(torch_rebuilders, made_by, &TorchRebuilder::name);
      if (known == torch_rebuilders.end()) throw bad("it is built by a function that doesn't build tensors");
      if (!known->unreadable.empty()) {
        throw bad("it is {}; only dense tensors can be read", known->unreadable);
      }
      const auto& items = arguments->items;
      if (made_by == "torch._utils._rebuild_tensor_v2") return record(name, items, false);
      if (made_by == "torch._utils._rebuild_tensor_v3") return record(name, items, true);
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

  // With `typed`, the dtype is an argument, and the storage may be untyped.
  TorchTensorRecord record(const std::string& name, const std::vector<Id>& arguments, bool typed) {
    const std::size_t required = typed ? 7 : 6;
    if (arguments.size() < required || arguments.size() > required + 1) {
      throw bad("it has {} arguments; {} or {} are allowed", arguments.size(), required, required + 1);
    }
    TorchTensorRecord record;
    record.name = name;
    const auto* dtype = read_storage(record, arguments[0]);
    if (typed) {
      const auto* global = get<pickle::Global>(arguments[6]);
      dtype = global ? find_dtype(&TorchDtype::python, global->name) : nullptr;
      if (!dtype) throw bad("dtype: {} can't be read", global ? global->name : "what isn't one");
    }
    if (!dtype) throw bad("its storage has no dtype");
    record.dtype = dtype->libtorch;
    record.item_size = dtype->size;
    const auto* offset = get<std::int64_t>(arguments[1]);
    record.offset = offset ? *offset : throw bad("offset isn't a whole number");
    record.sizes = read_numbers(arguments[2], "size");
    record.strides = read_numbers(arguments[3], "stride");
    if (arguments.size() > required) read_metadata(record, arguments[required]);
    check_bounds(record);
    spend(sizeof record + name.size() + 16 * record.sizes.size());
    return record;
  }

  static const TorchDtype* find_dtype(std::string_view TorchDtype::*field, std::string_view name) {
    const auto* found = std::ranges::find(torch_dtypes, name, field);
    return found == torch_dtypes.end() ? nullptr : found;
  }

  // Returns the storage's dtype; unset if it is untyped.
  const TorchDtype* read_storage(TorchTensorRecord& record, Id id) const {
    const auto* persistent = get<pickle::PersistentId>(id);
    const auto* tuple = persistent ? get<pickle::Tuple>(persistent->id[0]) : nullptr;
    const auto* items = tuple && tuple->items.size() == 5 ? &tuple->items : nullptr;
    const auto* kind = items ? get<pickle::Text>((*items)[0]) : nullptr;
    const auto* type = items ? get<pickle::Global>((*items)[1]) : nullptr;
    const auto* key = items ? get<pickle::Text>((*items)[2]) : nullptr;
    const auto* count = items ? get<std::int64_t>((*items)[4]) : nullptr;
    if (!kind || kind->utf8 != "storage" || !type || !key || !count)
      throw bad("it doesn't refer to a storage");
    const auto allowed = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
    };
    if (key->utf8.empty() || key->utf8.size() > 100 || !std::ranges::all_of(key->utf8, allowed)) {
      throw bad("storage: {} isn't a valid storage name", in_quotes(key->utf8));
    }
    record.storage = key->utf8;
    const auto* dtype = type->name.empty() ? nullptr : find_dtype(&TorchDtype::storage, type->name);
    if (!dtype && type->name != "torch.storage.UntypedStorage") {
      throw bad("storage: {} can't be read", type->name);
    }
    const std::uint64_t item_size = dtype ? dtype->size : 1;
    if (*count < 0 || static_cast<std::uint64_t>(*count) > most / item_size) {
      throw bad("storage: an invalid number of elements, {}", *count);
    }
    record.storage_bytes = static_cast<std::uint64_t>(*count) * item_size;
    return dtype;
  }

  std::vector<std::int64_t> read_numbers(Id id, const char* what) const {
    const auto* tuple = get<pickle::Tuple>(id);
    if (!tuple) throw bad("{}: it isn't a tuple", what);
    if (tuple->items.size() > 64) {
      throw bad("{}: it has {} dimensions; at most 64 are allowed", what, tuple->items.size());
    }
    std::vector<std::int64_t> numbers;
    for (const auto item : tuple->items) {
      const auto* number = get<std::int64_t>(item);
      if (!number || *number < 0) throw bad("{}: it must have whole numbers from 0", what);
      numbers.push_back(*number);
    }
    return numbers;
  }

  void read_metadata(TorchTensorRecord& record, Id id) const {
    if (get<pickle::None>(id)) return;
    const auto* dict = get<pickle::Dict>(id);
    if (!dict) throw bad("metadata: it isn't a dict");
    for (std::size_t i = 0; i < dict->items.size(); i += 2) {
      const auto* key = get<pickle::Text>(dict->items[i]);
      const auto* value = get<bool>(dict->items[i + 1]);
      if (!key || !value || (key->utf8 != "conj" && key->utf8 != "neg")) {
        throw bad("metadata: {} is unknown; conj and neg are known", key ? in_quotes(key->utf8) : "a key");
      }
      (key->utf8 == "conj" ? record.conjugate : record.negative) = *value;
    }
    if (record.conjugate && !record.dtype.starts_with("Complex"))
      throw bad("metadata: conj is only for complex numbers");
  }

  // Every element must lie in the storage, and no intermediate product may overflow.
  void check_bounds(const TorchTensorRecord& record) const {
    if (record.sizes.size() != record.strides.size()) {
      throw bad("it has {} sizes and {} strides", record.sizes.size(), record.strides.size());
    }
    const auto capacity = record.storage_bytes / record.item_size;
    // Empty dimensions count as 1, as in LibTorch's computation of strides.
    std::uint64_t elements = 1;
    for (const auto size : record.sizes) {
      const auto factor = std::max<std::uint64_t>(static_cast<std::uint64_t>(size), 1);
      if (factor > most / record.item_size / elements) throw bad("size: it is too large");
      elements *= factor;
    }
    for (const auto stride : record.strides)
      if (static_cast<std::uint64_t>(stride) > std::max(capacity, elements))
        throw bad("stride: it is too large");
    if (!lies_within(record.sizes, record.strides, record.offset, capacity))
      throw bad("its elements lie outside its storage of {} bytes", record.storage_bytes);
  }

  static constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

  const pickle::Document& document_;
  std::uint64_t budget_;
  std::string_view source_, tensor_ = {};
  std::vector<bool> has_tensors_, seen_;
  std::set<std::string> names_;
  TorchStateDict result_;
};

}  // namespace

bool lies_within(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                 std::int64_t offset, std::uint64_t capacity) {
  if (offset < 0 || static_cast<std::uint64_t>(offset) > capacity) return false;
  if (std::ranges::count(sizes, 0) > 0) return true;
  auto last = static_cast<std::uint64_t>(offset);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto steps = static_cast<std::uint64_t>(sizes[i]) - 1,
               stride = static_cast<std::uint64_t>(strides[i]);
    if (stride != 0 && steps > (capacity - last) / stride) return false;
    last += steps * stride;
  }
  return last < capacity;
}

}  // namespace etude::inline v0::detail

namespace etude::inline v0 {

TorchStateDict read_torch_state_dict(const pickle::Document& document, std::size_t pickle_bytes,
                                     std::string_view key, std::string_view source) {
  return detail::TorchStateDictReader(document, pickle_bytes, source).read(key);
}

TorchStateDict read_all_torch_tensors(const pickle::Document& document, std::size_t pickle_bytes,
                                      std::string_view source) {
  return detail::TorchStateDictReader(document, pickle_bytes, source).read_all();
}

}  // namespace etude::inline v0
