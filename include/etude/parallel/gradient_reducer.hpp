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

/// The number of processes with each result, and the first numbers of `GradientReducer::finish`, added up.
struct GradientsResults {
  std::array<std::int64_t, 5> counts = {};
  std::vector<double> sums = {};

  std::int64_t count(GradientsResult result) const { return counts[static_cast<std::size_t>(result)]; }
};

/// Sums the gradients of all processes straight out of the flat buffers, in chunks, while the backward pass
/// is still running: a chunk is sent once all its gradients are there. All processes send the chunks in one
/// order, the parameters of the last layers first, whatever the order of their graphs.
///
/// Sparse gradients are sent last, as indices and values.
///
/// Each block of sharded parameters is a chunk, and a process gets the sums of its own share. If it keeps no
/// other gradients, each is copied to its chunk and freed as soon as the backward pass has it.
class GradientReducer {
 public:
  /// Sums those of `parameters`, which belong to a model with these `names` of parameters, in its order. A
  /// chunk ends with the parameter that makes it at least `chunk_bytes` long.
  GradientReducer(Communicator& communicator, std::vector<FlatParameters*> parameters,
                  const std::vector<std::string>& names, std::int64_t chunk_bytes = std::int64_t{25} << 20);

  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;
  ~GradientReducer();

  /// Makes the gradients flat, and sends them while the next backward pass runs: the last one of an update,
  /// or each if `sums_every_backward`.
  void begin();

  /// Whether gradients can't wait for the last backward pass of an update, because only a share is kept.
  bool sums_every_backward() const;

  /// Sends the rest, with zeros for parameters that have no gradient in this process, and waits for all. A
  /// parameter that has a gradient in any process has one in all of them afterwards. A process without
  /// gradients calls it without `begin`. The results of all processes come with it, and the sums of
  /// `numbers`, of which all have as many. With `same_graphs`, throws DataError in all processes if they are
  /// complete and a parameter has no gradient in one of them.
  GradientsResults finish(GradientsResult result = GradientsResult::complete,
                          const std::vector<double>& numbers = {}, bool same_graphs = false);

  std::size_t chunks() const { return chunks_.size(); }
  /// The number of chunks that the last backward pass sent before it ended.
  std::size_t sent_early() const { return sent_early_; }

 private:
  struct Chunk {
    std::size_t list = 0;    // index of the FlatParameters
    std::size_t buffer = 0;  // of its buffer
    std::int64_t begin = 0;
    std::int64_t end = 0;  // in elements
    std::size_t position =
        std::numeric_limits<std::size_t>::max();  // the first of its parameters' in the model
    std::size_t parameters = 0;
    std::size_t missing = 0;   // gradients that the backward pass has yet to give
    torch::Tensor apart = {};  // its gradients, if only a share of them is kept
  };

  bool is_outdated() const;
  void make_chunks();
  void add_chunks_of_parameters(std::size_t list);
  void add_chunks_of_blocks(std::size_t list);
  void add_to_chunk(std::size_t chunk, std::size_t list, std::size_t slot);
  void arrived(std::size_t list, std::size_t slot);
  /// The flat gradient of a parameter, which has none afterwards.
  torch::Tensor take_gradient(std::size_t list, std::size_t slot);
  void add_to_apart(Chunk& chunk, std::size_t slot, const torch::Tensor& gradient);
  void send_next();
  void sum_sparse();
  PendingMessage begin_sum_of_apart(const Chunk& chunk, const torch::Tensor& gradients);
  /// For each parameter whether it has a gradient, or `new_sparse` for the first sparse one, for each result
  /// the number of processes, and the numbers: added up, they are the agreement.
  torch::Tensor own_result(GradientsResult result, const std::vector<double>& numbers) const;
  GradientsResults read_agreement(const torch::Tensor& sums, std::size_t numbers, bool same_graphs);

  static constexpr double new_sparse = std::int64_t{1} << 32;  // more than there are processes

  Communicator& communicator_;
  std::vector<FlatParameters*> parameters_;
  std::map<std::string, std::size_t> position_;  // in the model, by name
  std::int64_t chunk_bytes_;
  std::vector<std::shared_ptr<const FlatLayout>> layouts_;
  std::vector<Chunk> chunks_;                                     // in the order of sending
  std::vector<std::vector<std::vector<std::size_t>>> chunks_of_;  // by list and slot
  std::vector<libtorch::GradientHook> hooks_;
  std::mutex mutex_;  // backward passes of several devices have a thread each
  std::deque<PendingMessage> messages_;
  std::size_t next_ = 0;
  std::size_t sent_early_ = 0;
  bool sending_ = false;
};

}  // namespace etude::inline v0
