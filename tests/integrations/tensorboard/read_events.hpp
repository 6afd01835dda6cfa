#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <ostream>
#include <protozero/pbf_reader.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/folder.hpp"

/// Reads event files independently of the code that writes them.
namespace toy {

inline std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

struct EventHistogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits = {}, counts = {};
};

/// A picture or a sound: its fields by their numbers.
struct EventMedia {
  std::map<std::uint32_t, double> numbers = {};
  std::map<std::uint32_t, std::string> bytes = {};
};

struct EventValue {
  std::string tag = {};
  double number = std::numeric_limits<double>::quiet_NaN();
  bool has_number = false;
  std::string text = {};
  EventHistogram histogram = {};
  EventMedia image = {}, audio = {};
  std::string plugin = {}, content = {};  ///< a plugin's name and data
};

struct Event {
  double time = 0;
  std::int64_t step = 0;
  std::string version = {}, graph = {};
  int session = 0;  ///< 1 is START
  std::vector<EventValue> values = {};
};

inline EventMedia media_in(protozero::pbf_reader reader) {
  EventMedia media;
  while (reader.next()) {
    const auto tag = reader.tag();
    switch (reader.wire_type()) {
      case protozero::pbf_wire_type::varint:
        media.numbers[tag] = static_cast<double>(reader.get_int64());
        break;
      case protozero::pbf_wire_type::fixed32:
        media.numbers[tag] = static_cast<double>(reader.get_float());
        break;
      default:
        media.bytes[tag] = reader.get_bytes();
    }
  }
  return media;
}

inline EventHistogram histogram_in(protozero::pbf_reader reader) {
  EventHistogram histogram;
  while (reader.next()) switch (reader.tag()) {
      case 1:
        histogram.min = reader.get_double();
        break;
      case 2:
        histogram.max = reader.get_double();
        break;
      case 3:
        histogram.num = reader.get_double();
        break;
      case 4:
        histogram.sum = reader.get_double();
        break;
      case 5:
        histogram.sum_squares = reader.get_double();
        break;
      case 6:
        for (const double limit : reader.get_packed_double()) histogram.limits.push_back(limit);
        break;
      case 7:
        for (const double count : reader.get_packed_double()) histogram.counts.push_back(count);
        break;
      default:
        throw std::runtime_error("a field that no histogram has");
    }
  return histogram;
}

inline EventValue value_in(protozero::pbf_reader reader) {
  EventValue value;
  while (reader.next()) switch (reader.tag()) {
      case 1:
        value.tag = reader.get_string();
        break;
      case 2:
        value.number = static_cast<double>(reader.get_float());
        value.has_number = true;
        break;
      case 4:
        value.image = media_in(reader.get_message());
        break;
      case 5:
        value.histogram = histogram_in(reader.get_message());
        break;
      case 6:
        value.audio = media_in(reader.get_message());
        break;
      case 8: {
        auto tensor = reader.get_message();
        while (tensor.next()) tensor.tag() == 8 ? void(value.text = tensor.get_string()) : tensor.skip();
        break;
      }
      case 9: {
        auto metadata = reader.get_message();
        if (!metadata.next(1)) break;
        auto plugin = metadata.get_message();
        while (plugin.next()) {
          auto& part = plugin.tag() == 1 ? value.plugin : value.content;
          part = plugin.get_string();
        }
        break;
      }
      default:
        throw std::runtime_error("a field that no value has");
    }
  return value;
}

inline Event event_in(protozero::pbf_reader reader) {
  Event event;
  while (reader.next()) switch (reader.tag()) {
      case 1:
        event.time = reader.get_double();
        break;
      case 2:
        event.step = reader.get_int64();
        break;
      case 3:
        event.version = reader.get_string();
        break;
      case 4:
        event.graph = reader.get_string();
        break;
      case 5: {
        auto summary = reader.get_message();
        while (summary.next(1)) event.values.push_back(value_in(summary.get_message()));
        break;
      }
      case 7: {
        auto session = reader.get_message();
        if (session.next(1)) event.session = session.get_enum();
        break;
      }
      case 10:
        reader.skip();
        break;
      default:
        throw std::runtime_error("a field that no event has");
    }
  return event;
}

/// Throws unless the file consists of complete records with correct checksums.
inline std::vector<Event> read_events(const std::filesystem::path& path) {
  const auto number = [](std::string_view bytes) {
    std::uint64_t result = 0;
    std::memcpy(&result, bytes.data(), bytes.size());
    return result;
  };
  const auto masked = [](std::string_view bytes) {
    const auto crc = crc32c(bytes);
    return static_cast<std::uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8U);
  };
  const auto text = read_text(path);
  std::vector<Event> events;
  for (std::string_view rest = text; !rest.empty();) {
    const auto size = number(rest.substr(0, 8));
    const auto data = rest.substr(12, size);
    if (masked(rest.substr(0, 8)) != number(rest.substr(8, 4)) ||
        masked(data) != number(rest.substr(12 + size, 4)))
      throw std::runtime_error("a wrong checksum");
    events.push_back(event_in(protozero::pbf_reader(data.data(), data.size())));
    rest.remove_prefix(size + 16);
  }
  return events;
}

/// The event files of a folder, in the order of their names.
inline std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& name : names_in(folder))
    if (name.find("tfevents") != name.npos) files.push_back(folder / name);
  return files;
}

inline Names folders_in(const std::filesystem::path& folder) {
  Names folders;
  for (const auto& name : names_in(folder))
    if (std::filesystem::is_directory(folder / name)) folders.insert(name);
  return folders;
}

/// TensorBoard's view of a tag: the values of all files, except those that a later START hides.
inline std::vector<EventValue> shown(const std::filesystem::path& folder, const std::string& tag,
                                     std::vector<std::int64_t>* steps = nullptr) {
  std::vector<std::pair<std::int64_t, EventValue>> seen;
  bool has_begun = false;
  for (const auto& file : event_files(folder))
    for (const auto& event : read_events(file)) {
      if (event.session == 1 && std::exchange(has_begun, true))
        std::erase_if(seen, [&](const auto& one) { return one.first >= event.step; });
      for (const auto& value : event.values)
        if (value.tag == tag) seen.emplace_back(event.step, value);
    }
  std::vector<EventValue> values;
  for (auto& [step, value] : seen) {
    values.push_back(value);
    if (steps) steps->push_back(step);
  }
  return values;
}

inline std::vector<std::int64_t> steps_of(const std::filesystem::path& folder, const std::string& tag) {
  std::vector<std::int64_t> steps;
  shown(folder, tag, &steps);
  return steps;
}

inline std::vector<double> numbers_of(const std::filesystem::path& folder, const std::string& tag) {
  std::vector<double> numbers;
  for (const auto& value : shown(folder, tag)) numbers.push_back(value.number);
  return numbers;
}

struct GraphDefNode {
  std::string op = {}, attributes = {};
  std::vector<std::string> inputs = {};
  std::vector<std::int64_t> shape = {};

  friend bool operator==(const GraphDefNode&, const GraphDefNode&) = default;
  friend std::ostream& operator<<(std::ostream& out, const GraphDefNode& node) {
    out << node.op << " (" << node.attributes << ")";
    for (const auto& input : node.inputs) out << ' ' << input;
    for (const auto size : node.shape) out << ' ' << size;
    return out;
  }
};

inline void read_attribute(protozero::pbf_reader entry, GraphDefNode& node) {
  std::string key;
  while (entry.next()) {
    if (entry.tag() == 1) {
      key = entry.get_string();
      continue;
    }
    auto value = entry.get_message();
    if (!value.next()) continue;
    if (key == "attr") {
      node.attributes = value.get_string();
    } else {
      auto list = value.get_message();
      if (!list.next(7)) continue;
      auto shape = list.get_message();
      while (shape.next(2)) {
        auto dim = shape.get_message();
        node.shape.push_back(dim.next(1) ? dim.get_int64() : 0);
      }
    }
  }
}

inline std::map<std::string, GraphDefNode> nodes_of(const std::string& graph) {
  std::map<std::string, GraphDefNode> nodes;
  protozero::pbf_reader reader(graph);
  while (reader.next()) {
    if (reader.tag() != 1) {
      reader.skip();
      continue;
    }
    auto def = reader.get_message();
    std::string name;
    GraphDefNode node;
    while (def.next()) switch (def.tag()) {
        case 1:
          name = def.get_string();
          break;
        case 2:
          node.op = def.get_string();
          break;
        case 3:
          node.inputs.push_back(def.get_string());
          break;
        default:
          read_attribute(def.get_message(), node);
      }
    if (!nodes.emplace(name, node).second) throw std::runtime_error("two nodes called " + name);
  }
  return nodes;
}

}  // namespace toy
