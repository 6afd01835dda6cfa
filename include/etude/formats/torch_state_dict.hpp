#pragma once

#ifndef ETUDE_TORCH_FILE
#error "etude/formats/torch_state_dict.hpp needs a library: link etude::torch_file"
#endif

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
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

/// The description of one tensor in a PyTorch file. Its elements lie within its storage.
struct TorchTensorRecord {
  std::string name;
  std::string dtype;            ///< LibTorch's name: "Float"
  std::string storage;          ///< the key of its storage, which tensors that share memory have in common
  std::uint64_t item_size = 0;  ///< size of an element in bytes
  std::uint64_t storage_bytes = 0;
  std::int64_t offset = 0;  ///< position of the first element, in elements
  std::vector<std::int64_t> sizes, strides;
  bool conjugate = false, negative = false;  ///< lazy flags: the storage holds the conjugate or negated value

  /// The size of its elements in bytes; shared elements count each time.
  std::uint64_t bytes() const;
};

/// The tensors in a PyTorch file, and the printable names of skipped entries that aren't tensors.
struct TorchStateDict {
  std::vector<TorchTensorRecord> tensors;
  std::vector<std::string> skipped;
};

namespace detail {

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

  TorchStateDict read(Id root, std::string_view key, bool may_be_empty = false);

  template <class... Args>
  CheckpointError fault(fmt::format_string<Args...> text, Args&&... args) const {
    return CheckpointError(fmt::format("{}: ", source_) + fmt::format(text, std::forward<Args>(args)...));
  }

  template <class T>
  const T* get(Id id) const {
    return document_.get<T>(id);
  }
  bool is_container(Id id) const {
    return get<pickle::Dict>(id) || get<pickle::List>(id) || get<pickle::Tuple>(id);
  }
  bool is_tensor(Id id) const;

  // Limits the work done: values may be shared, so a few bytes can describe a great deal.
  void spend(std::uint64_t amount);

  void mark_tensors();
  bool mark_tensors(Id id);

  // The named entries of a dict, a list or a tuple.
  std::vector<Entry> entries(Id id);

  static std::string listed(const std::vector<std::string>& names);

  Id only_dict_of_tensors();

  // Keys may themselves contain dots.
  Id find(std::string_view key);

  // The document's max_depth limits this recursion.
  void collect(Id id, const std::string& prefix);

  TorchTensorRecord tensor(Id id, const std::string& name);

  // With `typed`, the dtype is an argument, and the storage may be untyped.
  template <class Fault>
  TorchTensorRecord record(const std::string& name, const std::vector<Id>& arguments, const Fault& bad,
                           bool typed) {
    const std::size_t required = typed ? 7 : 6;
    if (arguments.size() < required || arguments.size() > required + 1) {
      throw bad(
          fmt::format("it has {} arguments; {} or {} are allowed", arguments.size(), required, required + 1));
    }
    TorchTensorRecord record;
    record.name = name;
    const auto* dtype = read_storage(record, arguments[0], bad);
    if (typed) {
      const auto* global = get<pickle::Global>(arguments[6]);
      dtype = global ? find_dtype(&TorchDtype::python, global->name) : nullptr;
      if (!dtype) throw bad(fmt::format("dtype: {} can't be read", global ? global->name : "what isn't one"));
    }
    if (!dtype) throw bad("its storage has no dtype");
    record.dtype = dtype->libtorch;
    record.item_size = dtype->size;
    const auto* offset = get<std::int64_t>(arguments[1]);
    record.offset = offset ? *offset : throw bad("offset isn't a whole number");
    record.sizes = read_numbers(arguments[2], "size", bad);
    record.strides = read_numbers(arguments[3], "stride", bad);
    if (arguments.size() > required) read_metadata(record, arguments[required], bad);
    check_bounds(record, bad);
    spend(sizeof record + name.size() + 16 * record.sizes.size());
    return record;
  }

  static const TorchDtype* find_dtype(std::string_view TorchDtype::*field, std::string_view name);

  // Returns the storage's dtype; unset if it is untyped.
  template <class Fault>
  const TorchDtype* read_storage(TorchTensorRecord& record, Id id, const Fault& bad) const {
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
      throw bad(fmt::format("storage: {} isn't a valid storage name", in_quotes(key->utf8)));
    }
    record.storage = key->utf8;
    const auto* dtype = type->name.empty() ? nullptr : find_dtype(&TorchDtype::storage, type->name);
    if (!dtype && type->name != "torch.storage.UntypedStorage") {
      throw bad(fmt::format("storage: {} can't be read", type->name));
    }
    const std::uint64_t item_size = dtype ? dtype->size : 1;
    if (*count < 0 || static_cast<std::uint64_t>(*count) > most / item_size) {
      throw bad(fmt::format("storage: an invalid number of elements, {}", *count));
    }
    record.storage_bytes = static_cast<std::uint64_t>(*count) * item_size;
    return dtype;
  }

  template <class Fault>
  std::vector<std::int64_t> read_numbers(Id id, const char* what, const Fault& bad) const {
    const auto* tuple = get<pickle::Tuple>(id);
    if (!tuple) throw bad(fmt::format("{}: it isn't a tuple", what));
    if (tuple->items.size() > 64) {
      throw bad(fmt::format("{}: it has {} dimensions; at most 64 are allowed", what, tuple->items.size()));
    }
    std::vector<std::int64_t> numbers;
    for (const auto item : tuple->items) {
      const auto* number = get<std::int64_t>(item);
      if (!number || *number < 0) throw bad(fmt::format("{}: it must have whole numbers from 0", what));
      numbers.push_back(*number);
    }
    return numbers;
  }

  template <class Fault>
  void read_metadata(TorchTensorRecord& record, Id id, const Fault& bad) const {
    if (get<pickle::None>(id)) return;
    const auto* dict = get<pickle::Dict>(id);
    if (!dict) throw bad("metadata: it isn't a dict");
    for (std::size_t i = 0; i < dict->items.size(); i += 2) {
      const auto* key = get<pickle::Text>(dict->items[i]);
      const auto* value = get<bool>(dict->items[i + 1]);
      if (!key || !value || (key->utf8 != "conj" && key->utf8 != "neg")) {
        throw bad(fmt::format("metadata: {} is unknown; conj and neg are known",
                              key ? in_quotes(key->utf8) : "a key"));
      }
      (key->utf8 == "conj" ? record.conjugate : record.negative) = *value;
    }
    if (record.conjugate && !record.dtype.starts_with("Complex"))
      throw bad("metadata: conj is only for complex numbers");
  }

  // Every element must lie in the storage, and no intermediate product may overflow.
  template <class Fault>
  static void check_bounds(const TorchTensorRecord& record, const Fault& bad) {
    if (record.sizes.size() != record.strides.size()) {
      throw bad(fmt::format("it has {} sizes and {} strides", record.sizes.size(), record.strides.size()));
    }
    const auto capacity = record.storage_bytes / record.item_size;
    const auto outside = [&] {
      return bad(fmt::format("its elements lie outside its storage of {} bytes", record.storage_bytes));
    };
    // Empty dimensions count as 1, as in LibTorch's computation of strides.
    std::uint64_t elements = 1;
    for (const auto size : record.sizes) {
      const auto factor = std::max<std::uint64_t>(static_cast<std::uint64_t>(size), 1);
      if (factor > most / record.item_size / elements) throw bad("size: it is too large");
      elements *= factor;
    }
    const bool empty = std::ranges::find(record.sizes, 0) != record.sizes.end();
    if (record.offset < 0 || static_cast<std::uint64_t>(record.offset) > capacity) throw outside();
    auto last = static_cast<std::uint64_t>(record.offset);
    for (std::size_t i = 0; i < record.sizes.size(); ++i) {
      const auto stride = static_cast<std::uint64_t>(record.strides[i]);
      if (stride > std::max(capacity, elements)) throw bad("stride: it is too large");
      if (empty || stride == 0) continue;
      const auto steps = static_cast<std::uint64_t>(record.sizes[i]) - 1;
      if (steps > capacity / stride) throw outside();
      last += steps * stride;
      if (last >= capacity) throw outside();
    }
    if (!empty && last >= capacity) throw outside();
  }

  static constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

  const pickle::Document& document_;
  std::uint64_t budget_;
  std::string_view source_;
  std::vector<bool> has_tensors_, seen_;
  std::set<std::string> names_;
  TorchStateDict result_;
};

}  // namespace detail

/// Finds the tensors in a file's pickle, `pickle_bytes` long. Nested dicts, lists and tuples give dotted
/// names ("optimizer.state.0.exp_avg"). `key` selects the dict whose tensors are returned, with names
/// relative to it; if `key` is empty, that is the root if it directly contains tensors, otherwise the only
/// entry with tensors. Throws CheckpointError that begins with `source` for a key that doesn't exist, for an
/// empty key if several entries have tensors (both list the keys), for tensors that aren't dense, and for
/// elements outside their storage.
inline TorchStateDict read_torch_state_dict(const pickle::Document& document, std::size_t pickle_bytes,
                                            std::string_view key, std::string_view source) {
  return detail::TorchStateDictReader(document, pickle_bytes, source).read(key);
}

/// The tensors of all dicts in a file's pickle, with names from its root.
inline TorchStateDict read_all_torch_tensors(const pickle::Document& document, std::size_t pickle_bytes,
                                             std::string_view source) {
  return detail::TorchStateDictReader(document, pickle_bytes, source).read_all();
}

}  // namespace etude::inline v0
