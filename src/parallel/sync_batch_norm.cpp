#include "etude/parallel/sync_batch_norm.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/custom_class.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/libtorch/batch_norm.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {
namespace detail {

using libtorch::MaybeTensor;

namespace {

torch::Tensor tensor_or_undefined(const MaybeTensor& tensor) {
  return tensor.has_value() ? *tensor : torch::Tensor();
}

/// Turns an undefined tensor into nullopt, since autograd functions don't accept undefined tensors.
MaybeTensor if_defined(const MaybeTensor& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor : MaybeTensor();
}

}  // namespace

class SyncedModel {
 public:
  SyncedModel(Communicator& communicator, const Model& model) : communicator_(&communicator), model_(model) {
    for (auto& named : model.state_dict()) {
      known_.insert(named.second.unsafeGetTensorImpl());
      tensors_.push_back(std::move(named.second));
    }
    if (const auto module = model.module()) {
      for (const auto& part : module->modules()) {
        mark<torch::nn::BatchNorm1dImpl>(part);
        mark<torch::nn::BatchNorm2dImpl>(part);
        mark<torch::nn::BatchNorm3dImpl>(part);
      }
    } else {
      refuse_unrecognizable(model.as<torch::jit::Module>());
    }
  }

  /// True if a tensor of a batch norm is one of the model's.
  bool knows(const MaybeTensor& tensor) const {
    return tensor.has_value() && known_.contains(tensor->unsafeGetTensorImpl());
  }
  /// True if a tensor shares memory with one of the model's: TorchScript passes detached tensors.
  bool shares_memory(const MaybeTensor& tensor) const {
    if (!tensor.has_value() || !tensor->defined() || tensor->numel() == 0) return false;
    return std::ranges::any_of(tensors_, [at = tensor->data_ptr(), n = tensor->numel()](const auto& own) {
      return own.numel() == n && own.data_ptr() == at;
    });
  }

  bool is_mark(const MaybeTensor& weight) const { return weight.has_value() && weight->is_same(mark_); }
  bool is_training() const { return model_.is_training(); }

  void count_call() { ++calls_; }
  std::int64_t calls() const { return calls_; }

  Communicator& communicator() const {
    if (auto* communicator = communicator_.load()) return *communicator;
    throw_ended();
  }
  [[noreturn]] static void throw_ended() {
    throw Error("a synchronized batch norm is no longer synchronized when its backward pass runs");
  }

  void end() {
    communicator_ = nullptr;
    for (const auto& weight : marked_) *weight = torch::Tensor();
  }

 private:
  // Gives a batch norm without tensors a mark as its weight, by which it is recognized.
  template <class Norm>
  void mark(const std::shared_ptr<torch::nn::Module>& module) {
    auto* norm = dynamic_cast<Norm*>(module.get());
    if (!norm || norm->weight.defined() || norm->running_mean.defined()) return;
    norm->weight = mark_;
    marked_.emplace_back(module, &norm->weight);
  }

  static void refuse_unrecognizable(const torch::jit::Module& script) {
    for (const auto& [name, part] : script.named_modules()) {
      if (part.type()->name()->qualifiedName().find(".batchnorm.BatchNorm") != std::string::npos &&
          part.parameters().size() == 0 && part.buffers().size() == 0)
        throw ArgumentError(
            fmt::format("the batch norm {} of the TorchScript model can't be synchronized: export it with "
                        "affine=True or track_running_stats=True",
                        name));
    }
  }

  std::atomic<Communicator*> communicator_;
  Model model_;
  std::vector<torch::Tensor> tensors_;
  std::unordered_set<const void*> known_;
  torch::Tensor mark_ = torch::empty({0});
  std::vector<std::shared_ptr<torch::Tensor>> marked_;
  std::atomic<std::int64_t> calls_ = 0;
};

namespace {

/// The synchronized models of this process.
class SyncedModels {
 public:
  static SyncedModels& all() {
    static SyncedModels models;
    return models;
  }

  void add(const std::shared_ptr<SyncedModel>& model) {
    const std::lock_guard lock(mutex_);
    models_.push_back(model);
  }
  void remove(const std::shared_ptr<SyncedModel>& model) {
    const std::lock_guard lock(mutex_);
    std::erase(models_, model);
  }

  /// The model of a batch norm, or null.
  std::shared_ptr<SyncedModel> find(const MaybeTensor& weight, const MaybeTensor& running_mean) const {
    const std::lock_guard lock(mutex_);
    for (const auto& model : models_)
      if (model->is_mark(weight) || model->knows(weight) || model->knows(running_mean)) return model;
    for (const auto& model : models_)
      if (model->shares_memory(weight) || model->shares_memory(running_mean)) return model;
    return nullptr;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<SyncedModel>> models_;
};

/// Statistics of the batches of all processes, in float32 or float64, one value a channel.
struct BatchStatistics {
  torch::Tensor mean;
  torch::Tensor var;        // biased
  torch::Tensor deviation;  // 1 / sqrt(var + eps)
  torch::Tensor count;      // number of values, one float64 element
};

torch::ScalarType statistics_type(const torch::Tensor& input) {
  return input.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
}

torch::Tensor in_type(const torch::Tensor& tensor, torch::ScalarType type) {
  return tensor.defined() ? tensor.to(type) : tensor;
}

/// Merges the statistics of all processes by Chan's formula, and updates the running statistics.
BatchStatistics synchronize(Communicator& communicator, const torch::Tensor& input,
                            const torch::Tensor& running_mean, const torch::Tensor& running_var,
                            double momentum, double eps) {
  const auto type = statistics_type(input);
  const auto channels = input.size(1);
  const auto own_count = input.numel() / channels;
  auto own = torch::zeros({2 * channels + 1}, input.options().dtype(torch::kDouble));
  if (own_count > 0) {
    // Passes unused running statistics because the results get their dtype.
    const auto unused = torch::zeros({channels}, input.options().dtype(type));
    const auto [mean, var] = at::batch_norm_update_stats(input, unused, unused.clone(), 0);
    own.narrow(0, 0, channels).copy_(mean);
    own.narrow(0, channels, channels).copy_(var).mul_(own_count);
    own[2 * channels].fill_(own_count);
  }
  const auto all = communicator.gather(own);
  const auto means = all.narrow(1, 0, channels);
  const auto counts = all.narrow(1, 2 * channels, 1);
  const auto count = counts.sum();
  // Waits for the device only if this process's batch alone is too small.
  const bool is_empty = own_count < 2 && count.item<double>() == 0;
  if (own_count < 2 && !is_empty)
    TORCH_CHECK(count.item<double>() > 1,
                "Expected more than 1 value per channel when training, got 1 in the ",
                communicator.world_size(), " processes together (input size ", input.sizes(), " here)");

  const auto divisor = count.clamp_min(1);
  const auto mean = (means * counts).sum(0) / divisor;
  const auto squares = all.narrow(1, channels, channels) + (means - mean).square() * counts;
  const auto var = squares.sum(0) / divisor;
  if (!is_empty) {
    if (running_mean.defined()) running_mean.mul_(1 - momentum).add_(mean, momentum);
    if (running_var.defined())
      running_var.mul_(1 - momentum).add_(var * (count / (count - 1)), momentum);  // the unbiased variance
  }
  return {mean.to(type), var.to(type), (var + eps).rsqrt().to(type), divisor};
}

torch::Tensor normalize_by(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                           const BatchStatistics& statistics, double eps) {
  if (input.numel() == 0) return input.clone();
  const auto type = statistics_type(input);
  return std::get<0>(at::native_batch_norm(input, in_type(weight, type), in_type(bias, type), statistics.mean,
                                           statistics.var, /*training=*/false, /*momentum=*/0, eps));
}

/// The gradients of input, weight and bias. For weight and bias, they are this process's summands, as data
/// parallel training expects.
std::array<torch::Tensor, 3> gradients(const SyncedModel& model, const torch::Tensor& gradient,
                                       const torch::Tensor& input, const torch::Tensor& weight,
                                       const BatchStatistics& statistics, double eps, bool needs_input) {
  const auto& [mean, var, deviation, count] = statistics;
  if (at::GradMode::is_enabled())
    throw Error("a synchronized batch norm has no gradients of gradients (create_graph)");
  const auto type = statistics_type(input);
  const auto scale = in_type(weight, type);
  auto products = torch::zeros_like(mean), sums = torch::zeros_like(mean);
  if (input.numel() > 0) {
    std::tie(std::ignore, products, sums) =
        at::native_batch_norm_backward(gradient, input, scale, {}, {}, mean, deviation, /*train=*/true, eps,
                                       std::array<bool, 3>{false, true, true});
  }
  std::array<torch::Tensor, 3> result;
  if (weight.defined()) {
    result[1] = products.to(weight.scalar_type());
    result[2] = sums.to(weight.scalar_type());
  }
  if (!needs_input) return result;

  const auto all = torch::stack({products, sums}).to(torch::kDouble);
  model.communicator().sum(all);
  if (input.numel() == 0) {
    result[0] = torch::zeros_like(input);
    return result;
  }
  // The gradient of x is w d (g - mean(g) - xhat mean(g xhat)) with xhat = (x - mean) d, written as a g + b x
  // + c.
  const auto d = deviation.to(torch::kDouble);
  const auto a = weight.defined() ? d * weight : d;
  const auto b = -a * d * all[0] / count;
  const auto c = -a * all[1] / count - b * mean;
  const auto linear =
      std::get<0>(at::native_batch_norm(input.to(type), b.to(type), c.to(type), torch::zeros_like(mean),
                                        torch::ones_like(mean), /*training=*/false, 0, /*eps=*/0));
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = -1;
  result[0] = linear.addcmul_(gradient.to(type), a.to(type).view(shape)).to(input.scalar_type());
  return result;
}

struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
  struct Call : torch::CustomClassHolder {
    Call(std::shared_ptr<SyncedModel> m, BatchStatistics s, double e, bool needs)
        : model(std::move(m)), statistics(std::move(s)), eps(e), needs_input(needs) {}
    std::shared_ptr<SyncedModel> model;
    BatchStatistics statistics;
    double eps;
    bool needs_input;
  };

  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const torch::Tensor& input, const MaybeTensor& weight,
                                                const MaybeTensor& bias,
                                                const c10::intrusive_ptr<Call>& call) {
    const auto scale = tensor_or_undefined(weight);
    context->save_for_backward({input, scale});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return {normalize_by(input, scale, tensor_or_undefined(bias), call->statistics, call->eps)};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const auto holder = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<const Call&>(*holder);
    const auto result = gradients(*call.model, output_gradients[0], saved[0], saved[1], call.statistics,
                                  call.eps, call.needs_input);
    return {result[0], result[1], result[2], torch::Tensor()};
  }
};

// Marks this implementation among batch norms. LibTorch's indices are small, so this one is unused.
constexpr std::int64_t sync_batch_norm_index = 1'000;

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor, std::int64_t> sync_batch_norm_forward(
    const torch::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
    const MaybeTensor& running_mean, const MaybeTensor& running_var, bool training, double momentum,
    double eps, bool cudnn_enabled) {
  static const auto own = libtorch::batch_norm_operator().forward;
  const auto model = training ? SyncedModels::all().find(weight, running_mean) : nullptr;
  const bool is_mark = model && model->is_mark(weight);
  if (!model || !model->is_training() || input.dim() < 2 || input.size(1) == 0) {
    return own(input, is_mark ? MaybeTensor() : weight, bias, running_mean, running_var, training, momentum,
               eps, cudnn_enabled);
  }
  model->count_call();
  BatchStatistics statistics;
  {
    const torch::NoGradGuard no_grad;
    statistics = synchronize(model->communicator(), input, tensor_or_undefined(running_mean),
                             tensor_or_undefined(running_var), momentum, eps);
  }
  const auto output = SyncBatchNormFunction::apply(
      input, is_mark ? MaybeTensor() : if_defined(weight), if_defined(bias),
      c10::make_intrusive<SyncBatchNormFunction::Call>(model, statistics, eps, input.requires_grad()))[0];
  return {output, statistics.mean, statistics.deviation, statistics.count, sync_batch_norm_index};
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> sync_batch_norm_backward(
    std::int64_t index, const torch::Tensor& input, const torch::Tensor& gradient, const MaybeTensor& weight,
    const MaybeTensor& running_mean, const MaybeTensor& running_var, const MaybeTensor& mean,
    const MaybeTensor& deviation, bool training, double eps, std::array<bool, 3> needed,
    const torch::Tensor& reserve) {
  static const auto own = libtorch::batch_norm_operator().backward;
  if (index != sync_batch_norm_index)
    return own(index, input, gradient, weight, running_mean, running_var, mean, deviation, training, eps,
               needed, reserve);
  const auto model = SyncedModels::all().find(weight, running_mean);
  if (!model) SyncedModel::throw_ended();
  const auto [of_input, of_weight, of_bias] = gradients(*model, gradient, input, tensor_or_undefined(weight),
                                                        {*mean, {}, *deviation, reserve}, eps, needed[0]);
  return {of_input, of_weight, of_bias};
}

}  // namespace

}  // namespace detail

SyncBatchNorms::SyncBatchNorms(Communicator& communicator, const Model& model) {
  if (communicator.world_size() == 1) return;
  static std::once_flag once;
  std::call_once(once, [] {
    libtorch::replace_batch_norm_operator(
        {&detail::sync_batch_norm_forward, &detail::sync_batch_norm_backward});
  });
  synced_ = std::make_shared<detail::SyncedModel>(communicator, model);
  detail::SyncedModels::all().add(synced_);
}

SyncBatchNorms::~SyncBatchNorms() {
  if (!synced_) return;
  detail::SyncedModels::all().remove(synced_);
  synced_->end();
}

std::int64_t SyncBatchNorms::calls() const { return synced_ ? synced_->calls() : 0; }

}  // namespace etude::inline v0
