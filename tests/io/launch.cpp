#include "etude/io/launch.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace io_launch_test {

using Environment = std::map<std::string, std::string>;

etude::Launch launch_in(const Environment& environment) {
  return etude::find_launch([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string fault_in(const Environment& environment) {
  return toy::fault_of<etude::ArgumentError>([&] { launch_in(environment); });
}

TEST_CASE("without a launcher there is one process") {
  CHECK(launch_in({}) == etude::Launch{});
  CHECK(launch_in({}).world_size == 1);
  CHECK(launch_in({{"RANK", "3"}}) == etude::Launch{});
}

TEST_CASE("torchrun gives the ranks, where to meet, and how often it has restarted") {
  const auto launch = launch_in({{"RANK", "5"},
                                 {"WORLD_SIZE", "8"},
                                 {"LOCAL_RANK", "1"},
                                 {"LOCAL_WORLD_SIZE", "4"},
                                 {"MASTER_ADDR", "node0"},
                                 {"MASTER_PORT", "29400"},
                                 {"TORCHELASTIC_RESTART_COUNT", "2"},
                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  CHECK(launch == etude::Launch{.rank = 5,
                                .world_size = 8,
                                .local_rank = 1,
                                .local_world_size = 4,
                                .launcher = "torchrun",
                                .master_addr = "node0",
                                .master_port = 29400,
                                .restart_count = 2,
                                .agent_serves_store = true});
}

TEST_CASE("processes that were started by hand are on one machine and meet there") {
  const auto launch = launch_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  CHECK(launch.local_rank == 1);
  CHECK(launch.local_world_size == 2);
  CHECK(launch.master_addr == "127.0.0.1");
  CHECK(launch.master_port == 29500);
}

TEST_CASE("mpirun of Open MPI, and of MPICH and Intel MPI, gives the ranks") {
  const auto open_mpi = launch_in({{"OMPI_COMM_WORLD_RANK", "1"},
                                   {"OMPI_COMM_WORLD_SIZE", "2"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  CHECK(open_mpi.launcher == "mpirun");
  CHECK(open_mpi.rank == 1);
  CHECK(open_mpi.local_world_size == 2);
  const auto mpich = launch_in({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}});
  CHECK(mpich.launcher == "mpirun");
  CHECK(mpich.rank == 2);
}

TEST_CASE("srun counts the processes of each machine") {
  Environment environment{{"SLURM_PROCID", "6"},
                          {"SLURM_STEP_NUM_TASKS", "7"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "3"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}};
  const auto last = launch_in(environment);
  CHECK(last.launcher == "srun");
  CHECK(last.local_world_size == 1);
  CHECK(last.master_addr == "10.0.0.1");
  environment["SLURM_NODEID"] = "2";
  CHECK(launch_in(environment).local_world_size == 2);
}

TEST_CASE("a batch script of SLURM is one process, whatever its job has") {
  CHECK(launch_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}}) == etude::Launch{});
}

TEST_CASE("torchrun within a job of SLURM or mpirun counts") {
  const auto launch = launch_in({{"SLURM_PROCID", "0"},
                                 {"SLURM_STEP_NUM_TASKS", "1"},
                                 {"RANK", "3"},
                                 {"WORLD_SIZE", "4"},
                                 {"MASTER_ADDR", "localhost"}});
  CHECK(launch.launcher == "torchrun");
  CHECK(launch.world_size == 4);
}

TEST_CASE("errors name the variable, its value and what is allowed") {
  CHECK(fault_in({{"RANK", "4"}, {"WORLD_SIZE", "4"}}) ==
        "the environment variable RANK is '4': must be an integer from 0 to 3");
  CHECK(fault_in({{"WORLD_SIZE", "2"}}) ==
        "the environment variable RANK is '': must be an integer from 0 to 1");
  CHECK(fault_in({{"RANK", "0"}, {"WORLD_SIZE", "two"}}) ==
        "the environment variable WORLD_SIZE is 'two': must be an integer from 1 to 2147483647");
  CHECK(fault_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "65536"}}) ==
        "the environment variable MASTER_PORT is '65536': must be an integer from 1 to 65535");
  CHECK(fault_in({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "1"}}) ==
        "the environment variable LOCAL_WORLD_SIZE is '1': must be an integer from 2 to 4");
  CHECK(fault_in({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}) ==
        "the environment variable MASTER_ADDR isn't set: torchrun has started processes on several machines, "
        "which meet "
        "at the machine of rank 0");
  CHECK(fault_in({{"SLURM_PROCID", "3"},
                  {"SLURM_STEP_NUM_TASKS", "4"},
                  {"SLURM_LOCALID", "1"},
                  {"SLURM_NODEID", "5"},
                  {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}}) ==
        "the environment variable SLURM_STEP_TASKS_PER_NODE is '2(x2)': must have, for node 5, a number from "
        "2 to 4, as "
        "in 2(x3),1");
}

}  // namespace io_launch_test
