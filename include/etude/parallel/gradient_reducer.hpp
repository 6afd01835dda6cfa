#pragma once

#include <torch/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "etude/libtorch/gradient_hook.hpp"
#include "etude/optim/flat_layout.hpp"
#include "etude/optim/flat_parameters.hpp"
#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

/// The outcome of computing the gradients of an update in one process.
enum class GradientsResult { complete, no_batches, given_up, stopped, out_of_memory };

/// The number of processes with each result, and the sums of the numbers given to `GradientReducer::finish`.
struct GradientsResults {
  std::array<std::int64_t, 5> counts = {};
  std::vector<double> sums = {};

  std::int64_t count(GradientsResult result) const { return counts[static_cast<std::size_t>(result)]; }
};

/// Sums the gradients of all processes directly in the flat buffers, in chunks, while the backward pass is
/// still running: a chunk is sent once all its gradients are there. All processes send the chunks in the same
/// order, the last layers' parameters first, even if their graphs differ.
///
/// Sparse gradients are sent last, as indices and values.
///
/// For sharded parameters, each block is a chunk, and a process gets only the sums of its share. If it keeps
/// only that share, each gradient is copied to its chunk and freed as soon as the backward pass has computed
/// it.
class GradientReducer {
 public:
  /// Sums the gradients of `parameters`. `names` are the names of the model's parameters, in the model's
  /// order. A chunk ends with the parameter that makes it at least `chunk_bytes` long.
  GradientReducer(Communicator& communicator, std::vector<FlatParameters*> parameters,
                  const std::vector<std::string>& names, std::int64_t chunk_bytes = std::int64_t{25} << 20);

  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;
  ~GradientReducer();

  /// Makes the gradients flat, and sends them while the next backward pass runs. Call it before the last
  /// backward pass of an update or, if `sums_every_backward`, before each one.
  void begin();

  /// True if each backward pass must sum its gradients, because only a share of them is kept.
  bool sums_every_backward() const;

  /// Sends the remaining chunks, with zeros for parameters that have no gradient in this process, and waits
  /// for all of them. A parameter that has a gradient in any process then has one in all. A process without
  /// gradients calls it without `begin`. Returns the results of all processes, and the sums of `numbers`, of
  /// which all processes must pass the same count. With `same_graphs`, throws DataError in all processes if
  /// all are complete but a parameter lacks a gradient in one of them.
  GradientsResults finish(GradientsResult result = GradientsResult::complete,
                          const std::vector<double>& numbers = {}, bool same_graphs = false);

  std::size_t chunks() const { return chunks_.size(); }
  /// The number of chunks that the last backward pass sent before it ended.
  std::size_t sent_early() const { return sent_early_; }

 private:
  struct Chunk {
    std::size_t list = 0;    // index of the FlatParameters
    std::size_t buffer = 0;  // index of the buffer in it
    std::int64_t begin = 0;
    std::int64_t end = 0;  // in elements
    std::size_t position =
        std::numeric_limits<std::size_t>::max();  // smallest position of its parameters in the model
    std::vector<std::size_t> slots = {};          // of its parameters
    std::size_t parameters = 0;                   // number of those that are trained
    std::size_t missing = 0;   // number of gradients that the backward pass hasn't computed yet
    torch::Tensor apart = {};  // the chunk's gradients, if only a share of them is kept
  };

  bool is_outdated() const;
  void make_chunks();
  void add_chunks_of_parameters(std::size_t list);
  void add_chunks_of_blocks(std::size_t list);
  void add_to_chunk(std::size_t chunk, std::size_t list, std::size_t slot);
  void arrived(std::size_t list, std::size_t slot);
  /// Takes a parameter's gradient away, and returns it in the order of the flat buffer.
  torch::Tensor take_gradient(std::size_t list, std::size_t slot);
  void add_to_apart(Chunk& chunk, std::size_t slot, const torch::Tensor& gradient);
  void send_next();
  void sum_sparse();
  PendingMessage begin_sum_of_apart(const Chunk& chunk, const torch::Tensor& gradients);
  /// This process's contribution to the agreement, which is the sum over all processes: for each parameter 1
  /// if it has a gradient, or `new_sparse` if that is its first sparse one; for each result 1 or 0; then the
  /// numbers.
  torch::Tensor own_result(GradientsResult result, const std::vector<double>& numbers) const;
  GradientsResults read_agreement(const torch::Tensor& sums, std::size_t numbers, bool same_graphs);

  static constexpr double new_sparse = std::int64_t{1} << 32;  // larger than any number of processes

  Communicator& communicator_;
  std::vector<FlatParameters*> parameters_;
  std::map<std::string, std::size_t> position_;  // in the model, by parameter name
  std::int64_t chunk_bytes_;
  std::vector<std::shared_ptr<const FlatLayout>> layouts_;
  std::vector<Chunk> chunks_;                                     // in the order of sending
  std::vector<std::vector<std::vector<std::size_t>>> chunks_of_;  // by list and slot
  std::vector<libtorch::GradientHook> hooks_;
  std::mutex mutex_;  // each device's backward pass has its own thread
  std::deque<PendingMessage> messages_;
  std::size_t next_ = 0;
  std::size_t sent_early_ = 0;
  bool sending_ = false;
};

}  // namespace etude::inline v0
