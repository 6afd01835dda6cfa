#include "etude/integrations/wandb/records.hpp"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <protozero/pbf_writer.hpp>
#include <utility>

#include "etude/base/utf8.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/io/manifest.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0::detail {
namespace wandb_proto {

namespace {

using Writer = protozero::pbf_writer;

/// Adds text fields. Proto3 omits empty ones, and readers reject a record with invalid UTF-8.
void add_texts(Writer& message, std::initializer_list<std::pair<std::uint32_t, std::string_view>> texts) {
  for (const auto& [field, text] : texts)
    if (!text.empty()) message.add_string(field, mended_utf8(text));
}

void add_texts(Writer& message, std::uint32_t field, const std::vector<std::string>& texts) {
  for (const auto& text : texts) add_texts(message, {{field, text}});
}

void add_time(Writer& message, std::uint32_t field, WandbTime time) {
  const auto nanoseconds =
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  Writer timestamp(message, field);
  timestamp.add_int64(1, nanoseconds / 1'000'000'000);
  timestamp.add_int32(2, static_cast<std::int32_t>(nanoseconds % 1'000'000'000));
}

/// Items of a history, a summary and a config have the same form.
void add_items(Writer& message, const WandbItems& items) {
  for (const auto& item : items) {
    Writer out(message, 1);
    add_texts(out, 2, item.path);
    out.add_string(16, item.json);
  }
}

void add_config(Writer& message, const nlohmann::ordered_json& config) {
  for (const auto& [name, value] : config.items()) {
    Writer item(message, 1);
    add_texts(item, {{1, name}});
    item.add_string(16, wandb_json(value));
  }
}

}  // namespace

/// Adds a field with the message that `fill` writes.
template <class Fill>
void add_message(Writer& message, std::uint32_t field, Fill fill) {
  Writer inner(message, field);
  fill(inner);
}

/// Returns the message that `fill` writes.
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
  return json_line(value);
}

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
    add_texts(message, {{1, run.id},
                        {2, run.entity},
                        {3, run.project},
                        {6, run.group},
                        {7, run.job_type},
                        {8, run.name},
                        {9, run.notes},
                        {12, run.sweep_id},
                        {13, run.host}});
    add_message(message, 4, [&](auto& config) {
      add_config(config, {{"_wandb", nlohmann::ordered_json::object()}});
      add_config(config, run.config);
    });
    add_texts(message, 10, run.tags);
    if (run.starting_step > 0) message.add_int64(14, run.starting_step);
    add_time(message, 17, run.start);
    if (run.resumed) message.add_bool(18, true);
    add_message(message, 19, [](auto& telemetry) {
      add_message(telemetry, 9, [](auto& label) { label.add_string(1, "etude_trainer"); });
    });
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
    add_texts(message, {{1, metric.name}, {2, metric.glob}, {4, metric.step_metric}});
    add_message(message, 6, [&](auto& options) {
      if (!metric.step_metric.empty()) options.add_bool(1, true);
      if (metric.defined) options.add_bool(3, true);
    });
    if (!metric.expanded) return;
    add_message(message, 9, [](auto& control) { control.add_bool(1, true); });
    message.add_bool(10, true);
  });
}

std::string wandb_history_message(const WandbItems& row, std::int64_t step) {
  return wandb_proto::message_of([&](auto& message) {
    wandb_proto::add_items(message, row);
    wandb_proto::add_message(message, 2, [&](auto& number) { number.add_int64(1, step); });
  });
}

std::string wandb_summary_message(const WandbItems& values) {
  return wandb_proto::message_of([&](auto& message) { wandb_proto::add_items(message, values); });
}

std::string wandb_file_message(const std::string& path) {
  return wandb_proto::message_of([&](auto& message) {
    wandb_proto::add_message(message, 1, [&](auto& file) { wandb_proto::add_texts(file, {{1, path}}); });
  });
}

std::string wandb_environment_message(const WandbEnvironment& environment) {
  return wandb_proto::message_of([&](auto& message) {
    using namespace wandb_proto;
    add_texts(message, {{1, environment.os},
                        {6, environment.program},
                        {11, environment.root},
                        {12, environment.host},
                        {14, environment.executable},
                        {199, "etude"}});
    add_time(message, 3, environment.start);
    message.add_uint32(16, environment.cpu_count);
    message.add_uint32(17, environment.cpu_count);
    if (!environment.gpus.empty()) {
      add_texts(message, {{18, environment.gpus.front()}});
      message.add_uint32(19, static_cast<std::uint32_t>(environment.gpus.size()));
    }
    add_message(message, 20, [&](auto& entry) {
      entry.add_string(1, "/");
      add_message(entry, 2, [&](auto& disk) {
        disk.add_uint64(1, environment.disk_bytes);
        disk.add_uint64(2, environment.disk_used_bytes);
      });
    });
    add_message(message, 21, [&](auto& memory) { memory.add_uint64(1, environment.memory_bytes); });
    add_message(message, 22, [&](auto& cpu) { add_texts(cpu, {{3, environment.cpu_model}}); });
    for (const auto& name : environment.gpus)
      add_message(message, 24, [&](auto& gpu) { add_texts(gpu, {{1, name}}); });
  });
}

std::string wandb_artifact_message(const WandbArtifact& artifact) {
  return wandb_proto::message_of([&](auto& message) {
    using namespace wandb_proto;
    add_texts(message, {{1, artifact.run_id},
                        {2, artifact.project},
                        {3, artifact.entity},
                        {4, artifact.type},
                        {5, artifact.name},
                        {6, artifact.digest},
                        {8, artifact.metadata},
                        {15, artifact.client_id},
                        {16, artifact.sequence_client_id}});
    add_texts(message, 11, artifact.aliases);
    add_message(message, 12, [&](auto& manifest) {
      manifest.add_int32(1, 1);
      add_texts(manifest, {{2, "wandb-storage-policy-v1"}});
      add_message(manifest, 3, [](auto& config) {
        add_texts(config, {{1, "storageLayout"}, {2, "\"V2\""}});
      });
      for (const auto& file : artifact.files)
        add_message(manifest, 4, [&](auto& entry) {
          add_texts(entry, {{1, file.path}, {2, file.digest}, {6, file.local_path}});
          entry.add_int64(4, file.size);
          entry.add_bool(8, true);
        });
    });
    message.add_bool(14, true);
  });
}

std::string wandb_exit_message(int exit_code, std::int64_t seconds) {
  return wandb_proto::message_of([&](auto& message) {
    if (exit_code != 0) message.add_int32(1, exit_code);
    message.add_int32(2, static_cast<std::int32_t>(seconds));
  });
}

}  // namespace etude::inline v0::detail
