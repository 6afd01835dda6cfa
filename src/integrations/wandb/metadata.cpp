#include "etude/integrations/wandb/metadata.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "etude/base/read_file.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/processor.hpp"

namespace etude::inline v0::detail {

WandbEnvironment wandb_environment(WandbTime start) {
  WandbEnvironment environment;
  environment.start = start;
  environment.os = system_name();
  environment.host = host_name();
  std::error_code error;
  environment.root = std::filesystem::current_path(error).string();
  environment.executable = program_path();
  environment.program = std::filesystem::path(environment.executable).filename().string();
  environment.cpu_count = std::thread::hardware_concurrency();
  environment.cpu_model = read_processor_info().model;
  environment.memory_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                             static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
  if (const auto space = std::filesystem::space("/", error); !error) {
    environment.disk_bytes = space.capacity;
    environment.disk_used_bytes = space.capacity - space.free;
  }
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    const auto models = values_in(read_file(gpu.path() / "information").value_or(""), "Model");
    environment.gpus.push_back(models.empty() ? "" : models.front());
  }
  return environment;
}

nlohmann::ordered_json wandb_metadata(const WandbEnvironment& environment) {
  const auto as_text = [](std::uint64_t bytes) { return std::to_string(bytes); };
  nlohmann::ordered_json metadata{
      {"os", environment.os},
      {"startedAt", fmt::format("{:%Y-%m-%dT%H:%M:%S}Z",
                                fmt::gmtime(std::chrono::system_clock::to_time_t(environment.start)))},
      {"program", environment.program},
      {"root", environment.root},
      {"host", environment.host},
      {"executable", environment.executable},
      {"cpu_count", environment.cpu_count},
      {"cpu_count_logical", environment.cpu_count},
      {"disk",
       {{"/", {{"total", as_text(environment.disk_bytes)}, {"used", as_text(environment.disk_used_bytes)}}}}},
      {"memory", {{"total", as_text(environment.memory_bytes)}}},
      {"cpu", {{"model", environment.cpu_model}}}};
  if (!environment.gpus.empty()) {
    metadata["gpu"] = environment.gpus.front();
    metadata["gpu_count"] = environment.gpus.size();
  }
  return metadata;
}

}  // namespace etude::inline v0::detail
