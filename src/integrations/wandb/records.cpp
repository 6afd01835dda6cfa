#include "etude/integrations/wandb/records.hpp"

#include <fmt/format.h>

#include <cmath>
#include <protozero/pbf_writer.hpp>
#include <string>

#include "etude/base/utf8.hpp"
#include "etude/io/manifest.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0::detail {
namespace wandb_proto {

namespace {

using Writer = protozero::pbf_writer;

/// Proto3 omits empty strings.
void add_text(Writer& message, std::uint32_t field, std::string_view text) {
  if (!text.empty()) message.add_string(field, wandb_text(text));
}

void add_time(Writer& message, std::uint32_t field, WandbTime time) {
  const auto nanoseconds =
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  Writer timestamp(message, field);
  timestamp.add_int64(1, nanoseconds / 1'000'000'000);
  timestamp.add_int32(2, static_cast<std::int32_t>(nanoseconds % 1'000'000'000));
}

/// Items of a history, a summary and a config have the same form.
void add_item(Writer& message, const WandbItem& item) {
  Writer out(message, 1);
  for (const auto& name : item.path) out.add_string(2, wandb_text(name));
  out.add_string(16, item.json);
}

void add_config(Writer& message, const nlohmann::ordered_json& config) {
  for (const auto& [name, value] : config.items()) {
    Writer item(message, 1);
    add_text(item, 1, name);
    item.add_string(16, wandb_json(value));
  }
}

}  // namespace

/// A message that `fill` writes.
template <class Fill>
std::string message_of(Fill fill) {
  std::string bytes;
  Writer message(bytes);
  fill(message);
  return bytes;
}

}  // namespace wandb_proto

std::string wandb_record(std::int64_t number, WandbKind kind, std::string_view message) {
  return wandb_proto::message_of([&](auto& record) {
    record.add_int64(1, number);
    record.add_message(static_cast<std::uint32_t>(kind), message.data(), message.size());
  });
}

std::string wandb_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : std::string(non_finite_name(value));
}

std::string wandb_json(nlohmann::ordered_json value) {
  spell_non_finite(value);
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string wandb_text(std::string_view text) { return mended_utf8(text); }

std::string wandb_header_message() {
  return wandb_proto::message_of([](auto& header) {
    wandb_proto::Writer version(header, 1);
    version.add_string(1, "etude-" + version_text());
    version.add_string(2, "0.70.0");
  });
}

std::string wandb_run_message(const WandbRunInfo& run) {
  return wandb_proto::message_of([&](auto& message) {
    using namespace wandb_proto;
    add_text(message, 1, run.id);
    add_text(message, 2, run.entity);
    add_text(message, 3, run.project);
    {
      Writer config(message, 4);
      add_config(config, {{"_wandb", nlohmann::ordered_json::object()}});
      add_config(config, run.config);
    }
    add_text(message, 6, run.group);
    add_text(message, 7, run.job_type);
    add_text(message, 8, run.name);
    add_text(message, 9, run.notes);
    for (const auto& tag : run.tags) add_text(message, 10, tag);
    add_text(message, 12, run.sweep_id);
    add_text(message, 13, run.host);
    if (run.starting_step > 0) message.add_int64(14, run.starting_step);
    add_time(message, 17, run.start);
    if (run.resumed) message.add_bool(18, true);
    {
      Writer telemetry(message, 19);
      Writer label(telemetry, 9);
      label.add_string(1, "etude_trainer");
    }
    if (run.starting_seconds > 0) message.add_int32(20, static_cast<std::int32_t>(run.starting_seconds));
    if (run.resumed) message.add_bool(24, true);
  });
}

std::string wandb_config_message(const nlohmann::ordered_json& config) {
  return wandb_proto::message_of([&](auto& message) { wandb_proto::add_config(message, config); });
}

std::string wandb_metric_message(const WandbMetric& metric) {
  return wandb_proto::message_of([&](auto& message) {
    using namespace wandb_proto;
    add_text(message, 1, metric.name);
    add_text(message, 2, metric.glob);
    add_text(message, 4, metric.step_metric);
    {
      Writer options(message, 6);
      if (!metric.step_metric.empty()) options.add_bool(1, true);
      if (metric.defined) options.add_bool(3, true);
    }
    if (metric.expanded) {
      {
        Writer control(message, 9);
        control.add_bool(1, true);
      }
      message.add_bool(10, true);
    }
  });
}

std::string wandb_history_message(const WandbItems& row, std::int64_t step) {
  return wandb_proto::message_of([&](auto& message) {
    for (const auto& item : row) wandb_proto::add_item(message, item);
    wandb_proto::Writer number(message, 2);
    number.add_int64(1, step);
  });
}

std::string wandb_summary_message(const WandbItems& values) {
  return wandb_proto::message_of([&](auto& message) {
    for (const auto& item : values) wandb_proto::add_item(message, item);
  });
}

std::string wandb_file_message(const std::string& path) {
  return wandb_proto::message_of([&](auto& message) {
    wandb_proto::Writer file(message, 1);
    wandb_proto::add_text(file, 1, path);
  });
}

std::string wandb_environment_message(const WandbEnvironment& environment) {
  return wandb_proto::message_of([&](auto& message) {
    using namespace wandb_proto;
    add_text(message, 1, environment.os);
    add_time(message, 3, environment.start);
    add_text(message, 6, environment.program);
    add_text(message, 11, environment.root);
    add_text(message, 12, environment.host);
    add_text(message, 14, environment.executable);
    message.add_uint32(16, environment.cpu_count);
    message.add_uint32(17, environment.cpu_count);
    if (!environment.gpus.empty()) {
      add_text(message, 18, environment.gpus.front());
      message.add_uint32(19, static_cast<std::uint32_t>(environment.gpus.size()));
    }
    {
      Writer entry(message, 20);
      entry.add_string(1, "/");
      Writer disk(entry, 2);
      disk.add_uint64(1, environment.disk_bytes);
      disk.add_uint64(2, environment.disk_used_bytes);
    }
    {
      Writer memory(message, 21);
      memory.add_uint64(1, environment.memory_bytes);
    }
    {
      Writer cpu(message, 22);
      add_text(cpu, 3, environment.cpu_model);
    }
    for (const auto& name : environment.gpus) {
      Writer gpu(message, 24);
      add_text(gpu, 1, name);
    }
    add_text(message, 199, "etude");
  });
}

std::string wandb_artifact_message(const WandbArtifact& artifact) {
  return wandb_proto::message_of([&](auto& message) {
    using namespace wandb_proto;
    add_text(message, 1, artifact.run_id);
    add_text(message, 2, artifact.project);
    add_text(message, 3, artifact.entity);
    add_text(message, 4, artifact.type);
    add_text(message, 5, artifact.name);
    add_text(message, 6, artifact.digest);
    add_text(message, 8, artifact.metadata);
    for (const auto& alias : artifact.aliases) add_text(message, 11, alias);
    {
      Writer manifest(message, 12);
      manifest.add_int32(1, 1);
      manifest.add_string(2, "wandb-storage-policy-v1");
      {
        Writer config(manifest, 3);
        config.add_string(1, "storageLayout");
        config.add_string(2, "\"V2\"");
      }
      for (const auto& file : artifact.files) {
        Writer entry(manifest, 4);
        add_text(entry, 1, file.path);
        add_text(entry, 2, file.digest);
        entry.add_int64(4, file.size);
        add_text(entry, 6, file.local_path);
        entry.add_bool(8, true);
      }
    }
    message.add_bool(14, true);
    add_text(message, 15, artifact.client_id);
    add_text(message, 16, artifact.sequence_client_id);
  });
}

std::string wandb_exit_message(int exit_code, std::int64_t seconds) {
  return wandb_proto::message_of([&](auto& message) {
    if (exit_code != 0) message.add_int32(1, exit_code);
    message.add_int32(2, static_cast<std::int32_t>(seconds));
  });
}

}  // namespace etude::inline v0::detail
