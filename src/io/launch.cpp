#include "etude/io/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// The environment variables that a launcher sets. The local ones may be missing.
struct LauncherVariables {
  const char *launcher, *rank, *world_size, *local_rank, *local_world_size;
};

// For srun, these are the step's variables: the job's are also set in a batch script, which is a single
// process.
constexpr std::array launchers{
    LauncherVariables{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    LauncherVariables{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                      "OMPI_COMM_WORLD_LOCAL_SIZE"},
    LauncherVariables{"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    LauncherVariables{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                      "SLURM_STEP_TASKS_PER_NODE"}};

/// Reads environment variables and checks the numbers in them.
class LaunchReader {
 public:
  explicit LaunchReader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  std::string_view text(const char* name) const {
    const char* value = lookup_(name);
    return value ? value : "";
  }
  bool has(const char* name) const { return !text(name).empty(); }

  std::int64_t number(const char* name, std::int64_t least, std::int64_t most) const {
    const auto value = read_number<std::int64_t>(text(name));
    if (!value || *value < least || *value > most)
      throw ArgumentError(fmt::format("the environment variable {} is '{}': must be an integer from {} to {}",
                                      name, text(name), least, most));
    return *value;
  }

 private:
  const EnvironmentLookup& lookup_;
};

/// Reads the count for one node from SLURM's compressed list: "2(x3),1" means 2 on each of the first three
/// nodes, and 1 on the fourth.
std::optional<std::int64_t> count_on_node(std::string_view counts, std::int64_t node) {
  while (!counts.empty()) {
    const auto part = counts.substr(0, counts.find(','));
    counts.remove_prefix(std::min(part.size() + 1, counts.size()));
    const auto times = part.find("(x");
    const auto count = read_number<std::int64_t>(part.substr(0, times));
    std::optional<std::int64_t> nodes = 1;
    if (times != part.npos) {
      const auto rest = part.substr(times + 2);
      nodes = read_number<std::int64_t>(rest.substr(0, rest.find(')')));
    }
    if (!count || !nodes) return std::nullopt;
    if (node < *nodes) return count;
    node -= *nodes;
  }
  return std::nullopt;
}

/// Reads what one launcher says about its processes. Unless the launcher says otherwise, all processes are on
/// one machine.
Launch read_launch(const LaunchReader& reader, const LauncherVariables& names) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  Launch launch;
  launch.launcher = names.launcher;
  launch.world_size = reader.number(names.world_size, 1, most);
  if (launch.world_size > 1 || reader.has(names.rank))
    launch.rank = reader.number(names.rank, 0, launch.world_size - 1);
  launch.local_rank = launch.rank;
  launch.local_world_size = launch.world_size;
  if (reader.has(names.local_rank)) launch.local_rank = reader.number(names.local_rank, 0, launch.rank);
  if (!reader.has(names.local_world_size)) return launch;
  if (launch.launcher != "srun") {
    launch.local_world_size = reader.number(names.local_world_size, launch.local_rank + 1, launch.world_size);
    return launch;
  }
  const auto node = reader.has("SLURM_NODEID") ? reader.number("SLURM_NODEID", 0, most) : 0;
  const auto tasks = count_on_node(reader.text(names.local_world_size), node);
  if (!tasks || *tasks <= launch.local_rank || *tasks > launch.world_size)
    throw ArgumentError(fmt::format(
        "the environment variable {} is '{}': must have, for node {}, a number from {} to {}, as in 2(x3),1",
        names.local_world_size, reader.text(names.local_world_size), node, launch.local_rank + 1,
        launch.world_size));
  launch.local_world_size = *tasks;
  return launch;
}

/// Reads the address at which the processes meet.
void read_meeting_point(const LaunchReader& reader, Launch& launch) {
  launch.restart_count =
      reader.has("TORCHELASTIC_RESTART_COUNT")
          ? reader.number("TORCHELASTIC_RESTART_COUNT", 0, std::numeric_limits<std::int32_t>::max())
          : 0;
  launch.agent_serves_store = reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (reader.has("MASTER_PORT")) launch.master_port = reader.number("MASTER_PORT", 1, 65535);
  for (const char* name : {"MASTER_ADDR", "SLURM_LAUNCH_NODE_IPADDR"})
    if (launch.master_addr.empty()) launch.master_addr = reader.text(name);
  if (!launch.master_addr.empty()) return;
  if (launch.local_world_size < launch.world_size)
    throw ArgumentError(fmt::format(
        "the environment variable MASTER_ADDR isn't set: {} has started processes on several machines, "
        "which meet at the machine of rank 0",
        launch.launcher));
  launch.master_addr = "127.0.0.1";
}

}  // namespace

}  // namespace detail

Launch find_launch(const EnvironmentLookup& lookup) {
  const detail::LaunchReader reader(lookup);
  for (const auto& names : detail::launchers) {
    if (!reader.has(names.world_size)) continue;
    auto launch = detail::read_launch(reader, names);
    if (launch.world_size > 1) detail::read_meeting_point(reader, launch);
    return launch;
  }
  return {};
}

Launch find_launch() {
  return find_launch([](const char* name) { return std::getenv(name); });
}

}  // namespace etude::inline v0
