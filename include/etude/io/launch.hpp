#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace etude::inline v0 {

/// This process's place among the processes of a training, as the launcher describes it.
struct Launch {
  std::int64_t rank = 0;              ///< this process's number among all processes, from 0
  std::int64_t world_size = 1;        ///< number of processes in total
  std::int64_t local_rank = 0;        ///< this process's number on its machine, from 0
  std::int64_t local_world_size = 1;  ///< number of processes on this machine
  std::string launcher = {};          ///< "torchrun", "mpirun" or "srun"; empty if none
  std::string master_addr = {};       ///< machine where rank 0, or torchrun's agent, serves the store
  std::int64_t master_port = 29500;
  std::int64_t restart_count = 0;  ///< how often torchrun has restarted the processes
  bool agent_serves_store = false;

  friend bool operator==(const Launch&, const Launch&) = default;
};

/// Returns the value of an environment variable, or null.
using EnvironmentLookup = std::function<const char*(const char* name)>;

/// Reads the variables of torchrun (RANK, WORLD_SIZE, ..., which may also be set by hand), of mpirun (Open
/// MPI, MPICH, Intel MPI) or of srun. If none is set, there is one process. Throws an ArgumentError that
/// names the variable, its value and what is allowed.
Launch find_launch(const EnvironmentLookup& lookup);
Launch find_launch();

}  // namespace etude::inline v0
