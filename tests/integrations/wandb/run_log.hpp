#pragma once

#include <boost/crc.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/folder.hpp"
#include "common/variables.hpp"

namespace toy {

/// Reads the records of a transaction log according to its format; throws if it is incomplete.
inline std::vector<std::string> wandb_records(std::string_view file) {
  if (file.substr(0, 7) != std::string_view(":W&B\xE1\xBE\0", 7)) throw std::runtime_error("no header");
  const auto byte = [&](std::size_t at) { return std::uint32_t{static_cast<unsigned char>(file.at(at))}; };
  std::vector<std::string> records;
  std::string record;
  for (std::size_t at = 7; at < file.size();) {
    if (const auto left = 32768 - at % 32768; left < 7) {
      at += left;
      continue;
    }
    const auto crc = byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
    const auto size = byte(at + 4) | byte(at + 5) << 8, type = byte(at + 6);
    const auto chunk = file.substr(at + 6, size + 1);
    boost::crc_32_type sum;
    sum.process_bytes(chunk.data(), chunk.size());
    if (chunk.size() != size + 1 || sum.checksum() != crc) throw std::runtime_error("a broken chunk");
    if (7 + size > 32768 - at % 32768) throw std::runtime_error("a chunk in two blocks");
    record += chunk.substr(1);
    at += 7 + size;
    if (type == 1 || type == 4) records.push_back(std::exchange(record, ""));
  }
  if (!record.empty()) throw std::runtime_error("a record that isn't whole");
  return records;
}

/// Values as JSON, by name.
using WandbValues = std::map<std::string, std::string>;

struct WandbArtifactSeen {
  std::string name, metadata;
  std::vector<std::string> aliases;
  std::map<std::string, std::string> files;  ///< The path of each of its files.
};

/// The contents of an offline run.
struct WandbRunSeen {
  std::string id, entity, project, group, job_type, name, notes, sweep_id;
  std::vector<std::string> tags;
  bool resumed = false;
  std::int64_t starting_step = 0;
  WandbValues config, summary;
  std::vector<WandbValues> rows;
  std::vector<WandbArtifactSeen> artifacts;
  std::optional<int> exit_code;
};

inline std::pair<std::string, std::string> wandb_item(protozero::pbf_reader item) {
  std::string name, value;
  while (item.next()) switch (item.tag()) {
      case 1:
        name = item.get_string();
        break;
      case 2:
        name += (name.empty() ? "" : " > ") + item.get_string();
        break;
      case 16:
        value = item.get_string();
        break;
      default:
        item.skip();
    }
  return {name, value};
}

inline WandbValues wandb_items(protozero::pbf_reader message) {
  WandbValues values;
  while (message.next())
    message.tag() == 1 ? void(values.insert(wandb_item(message.get_message()))) : message.skip();
  return values;
}

inline void wandb_read_run(protozero::pbf_reader run, WandbRunSeen& seen) {
  while (run.next()) switch (run.tag()) {
      case 1:
        seen.id = run.get_string();
        break;
      case 2:
        seen.entity = run.get_string();
        break;
      case 3:
        seen.project = run.get_string();
        break;
      case 4:
        seen.config = wandb_items(run.get_message());
        break;
      case 6:
        seen.group = run.get_string();
        break;
      case 7:
        seen.job_type = run.get_string();
        break;
      case 8:
        seen.name = run.get_string();
        break;
      case 9:
        seen.notes = run.get_string();
        break;
      case 10:
        seen.tags.push_back(run.get_string());
        break;
      case 12:
        seen.sweep_id = run.get_string();
        break;
      case 14:
        seen.starting_step = run.get_int64();
        break;
      case 18:
        seen.resumed = run.get_bool();
        break;
      default:
        run.skip();
    }
}

inline WandbArtifactSeen wandb_artifact(protozero::pbf_reader artifact) {
  WandbArtifactSeen seen;
  while (artifact.next()) switch (artifact.tag()) {
      case 5:
        seen.name = artifact.get_string();
        break;
      case 8:
        seen.metadata = artifact.get_string();
        break;
      case 11:
        seen.aliases.push_back(artifact.get_string());
        break;
      case 12: {
        auto manifest = artifact.get_message();
        while (manifest.next(4)) {
          auto entry = manifest.get_message();
          std::string path, local;
          while (entry.next())
            entry.tag() == 1   ? void(path = entry.get_string())
            : entry.tag() == 6 ? void(local = entry.get_string())
                               : entry.skip();
          seen.files[path] = local;
        }
        break;
      }
      default:
        artifact.skip();
    }
  return seen;
}

/// Reads the run in a folder offline-run-TIME-ID.
inline WandbRunSeen read_wandb_run(const std::filesystem::path& folder) {
  WandbRunSeen seen;
  std::string file;
  for (const auto& name : names_in(folder))
    if (name.ends_with(".wandb")) file = read_text(folder / name);
  std::int64_t number = 0;
  for (const auto& bytes : wandb_records(file)) {
    protozero::pbf_reader record(bytes);
    while (record.next()) switch (record.tag()) {
        case 1:
          if (record.get_int64() != ++number) throw std::runtime_error("a number is missing");
          break;
        case 2:
          seen.rows.push_back(wandb_items(record.get_message()));
          break;
        case 3:
          for (auto& [name, value] : wandb_items(record.get_message())) seen.summary[name] = value;
          break;
        case 5:
          for (auto& [name, value] : wandb_items(record.get_message())) seen.config[name] = value;
          break;
        case 8:
          seen.artifacts.push_back(wandb_artifact(record.get_message()));
          break;
        case 17:
          wandb_read_run(record.get_message(), seen);
          break;
        case 18: {
          auto end = record.get_message();
          seen.exit_code = 0;
          while (end.next()) end.tag() == 1 ? void(seen.exit_code = end.get_int32()) : end.skip();
          break;
        }
        default:
          record.skip();
      }
  }
  return seen;
}

/// The folders of the runs in `root`, oldest first.
inline std::vector<std::filesystem::path> wandb_runs(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> folders;
  for (const auto& name : names_in(root / "wandb"))
    if (name.starts_with("offline-run-")) folders.push_back(root / "wandb" / name);
  return folders;
}

/// While it lives, only the given variables of Weights & Biases are set, and settings files are read only
/// from the folders that they name.
struct WandbVariables : Variables {
  explicit WandbVariables(Set set = {})
      : Variables((set.emplace("WANDB_CONFIG_DIR", "/dev/null"), set),
                  [](std::string_view name) { return name.starts_with("WANDB_"); }) {}
};

}  // namespace toy
