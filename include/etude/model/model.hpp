#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/tensors.hpp"
#include "etude/model/forward.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {

using NamedTensor = std::pair<std::string, torch::Tensor>;

/// Text files that belong to a model, such as config.json, by name.
using ModelFiles = std::map<std::string, std::string>;

/// Safetensors files saved next to a model's weights, by name. Each maps names of tensors in the file to
/// names in the model.
using TensorFiles = std::map<std::string, std::map<std::string, std::string>>;

/// Maps names of tied tensors that aren't saved to the names that are.
using TiedNames = std::map<std::string, std::string>;

/// The labels over which the loss of a model is a mean, if the model computes its loss itself.
enum class LossItems {
  unknown,
  labels,         ///< all labels except -100
  shifted_labels  ///< the same without each row's first label, since each score predicts the next label
};

namespace detail {

/// The type-erased interface of a model.
struct AnyModel {
  virtual ~AnyModel() = default;
  virtual std::string name() const = 0;
  virtual bool has_forward() const = 0;
  virtual bool accepts(std::size_t count) const = 0;
  virtual Tensors forward(const Tensors& inputs) = 0;
  virtual Tensors forward(const Batch& batch) { return forward(batch.inputs); }
  virtual bool takes_batch() const { return false; }
  virtual std::vector<NamedTensor> parameters() const = 0;
  virtual std::vector<NamedTensor> buffers() const = 0;
  virtual bool is_training() const = 0;
  virtual void train(bool on) = 0;
  virtual std::function<void()> keep_training_flags() const = 0;
  virtual void to(torch::Device device) = 0;
  virtual std::shared_ptr<torch::nn::Module> module() const { return nullptr; }
  virtual torch::jit::Module* script() { return nullptr; }
  virtual ModelFiles files() const { return {}; }
  virtual TensorFiles tensor_files() const { return {}; }
  virtual TiedNames tied_names() const { return {}; }
  virtual LossItems loss_items() const { return LossItems::unknown; }
};

template <class T>
Tensors output_of(const T& output) {
  static_assert(
      TensorsConvertible<T>,
      "etude: the model's forward must return a torch::Tensor, or a pair, tuple, vector, string-keyed map or "
      "Boost.Hana struct of them");
  if constexpr (TensorsConvertible<T>) return tensors_of(output);
}

/// The part of AnyModel that all torch::nn::Modules share.
class AnyNativeModel : public AnyModel {
 public:
  explicit AnyNativeModel(torch::nn::Module& module) : any_(module) {}

  std::string name() const override;
  std::vector<NamedTensor> parameters() const override;
  std::vector<NamedTensor> buffers() const override;
  bool is_training() const override;
  void train(bool on) override;
  void to(torch::Device device) override;
  std::function<void()> keep_training_flags() const override;

 private:
  torch::nn::Module& any_;
};

template <class M>
class NativeModel final : public AnyNativeModel {
 public:
  explicit NativeModel(std::shared_ptr<M> module) : AnyNativeModel(*module), module_(std::move(module)) {}

  std::shared_ptr<torch::nn::Module> module() const override { return module_; }
  ModelFiles files() const override {
    if constexpr (requires {
                    { module_->files() } -> std::same_as<const ModelFiles&>;
                  })
      return module_->files();
    else
      return {};
  }
  TensorFiles tensor_files() const override {
    if constexpr (requires {
                    { module_->tensor_files() } -> std::same_as<TensorFiles>;
                  })
      return module_->tensor_files();
    else
      return {};
  }
  TiedNames tied_names() const override {
    if constexpr (requires {
                    { module_->tied_names() } -> std::same_as<const TiedNames&>;
                  })
      return module_->tied_names();
    else
      return {};
  }
  LossItems loss_items() const override {
    if constexpr (
        requires { &M::loss_items; } || requires { module_->loss_items(); }) {
      constexpr bool fits = requires(const M& module) {
                              { module.loss_items() } -> std::same_as<LossItems>;
                            };
      static_assert(fits,
                    "etude: the model's loss_items must be a method `etude::LossItems loss_items() const`");
      if constexpr (fits) return module_->loss_items();
    }
    return LossItems::unknown;
  }
  bool has_forward() const override { return HasForward<M>; }
  bool takes_batch() const override { return ForwardTakesWhole<M, Batch>; }
  bool accepts(std::size_t count) const override {
    if constexpr (ForwardTakesWhole<M, Tensors> || ForwardTakesWhole<M, Batch>) return count > 0;
    return count <= max_forward_tensors && forward_takes<M>[count];
  }

  Tensors forward(const Tensors& inputs) override {
    if constexpr (ForwardTakesWhole<M, Tensors>) {
      return output_of(module_->forward(inputs));
    } else if constexpr (ForwardTakesWhole<M, Batch>) {
      return forward(make_batch(inputs, {}));
    } else {
      return forward_all<Tensors>(*module_, inputs, [](const auto& output) { return output_of(output); });
    }
  }

  Tensors forward(const Batch& batch) override {
    if constexpr (ForwardTakesWhole<M, Batch>) {
      return output_of(module_->forward(batch));
    } else {
      return forward(batch.inputs);
    }
  }

 private:
  std::shared_ptr<M> module_;
};

std::shared_ptr<AnyModel> script_model(torch::jit::Module module);

template <class T>
inline constexpr bool is_shared_ptr = false;
template <class T>
inline constexpr bool is_shared_ptr<std::shared_ptr<T>> = true;

template <class T>
concept HoldsModule = requires(const T& holder) {
                        typename T::ContainedType;
                        holder.is_empty();
                        { holder.ptr() } -> std::convertible_to<std::shared_ptr<typename T::ContainedType>>;
                      };

template <class T>
struct ModuleOf {
  using Type = T;
};
template <HoldsModule T>
struct ModuleOf<T> {
  using Type = typename T::ContainedType;
};

}  // namespace detail

/// Undoes a change of a model on destruction.
class ModelGuard {
 public:
  explicit ModelGuard(std::function<void()> restore) : restore_(std::move(restore)) {}
  ModelGuard(ModelGuard&& other) noexcept : restore_(std::exchange(other.restore_, nullptr)) {}
  ModelGuard& operator=(ModelGuard&&) = delete;
  ~ModelGuard();

 private:
  std::function<void()> restore_;
};

/// Restores the mode of every submodule of a model that has been put in evaluation mode.
using EvalGuard = ModelGuard;

/// A type-erased model; a copy refers to the same model. It is made from a `std::shared_ptr<M>` or
/// `torch::nn::ModuleHolder<M>` of a module whose `forward` takes 1 to 8 tensors (by value or const
/// reference), or all of them as `const Tensors&`, or the `const Batch&`; or from a `torch::jit::Module`. A
/// module without a `forward` suits a `compute_loss` that calls its parts.
class Model {
 public:
  Model() = default;

  /// Throws ArgumentError for a null pointer or an empty holder.
  template <class T>
    requires(!std::same_as<T, Model>)
  Model(T model) : model_(make(std::move(model))) {}

  explicit operator bool() const { return model_ != nullptr; }

  /// Computes the model's outputs, with names if the model names them. Throws ArgumentError if it has no
  /// forward, and DataError if forward doesn't accept this number of inputs, or if an output holds something
  /// other than tensors.
  Tensors forward(const Tensors& inputs) const;

  /// The same for a batch's inputs. A forward that takes the whole batch also sees the labels.
  // This is a template so that `forward({a, b})` means two inputs.
  template <std::same_as<Batch> B>
  Tensors forward(const B& batch) const {
    if (!accepts(batch.inputs.size())) refuse(batch.inputs);
    return model_->forward(batch);
  }

  bool has_forward() const { return model_->has_forward(); }

  /// True if forward accepts this number of tensors.
  bool accepts(std::size_t count) const { return model_->accepts(count); }

  /// True if forward takes the whole batch, including its labels.
  bool takes_batch() const { return model_->takes_batch(); }

  /// The class name of the module.
  std::string name() const { return model_->name(); }

  /// Every parameter once, under its first name.
  std::vector<NamedTensor> named_parameters() const;
  std::vector<NamedTensor> named_buffers() const;
  std::vector<torch::Tensor> parameters() const;

  /// Parameters, then buffers, under all their LibTorch names. The tensors are the model's, not copies.
  std::vector<NamedTensor> named_state() const;

  /// The same, without the names of tied tensors that the model doesn't save. Only an ExportedModule has such
  /// names, or a user's module with `const TiedNames& tied_names() const`.
  std::vector<NamedTensor> state_dict() const;

  /// Copies values into the model's tensors, which keep their storage. For a tensor with several names, one
  /// is enough. Throws a CheckpointError that lists every name that is missing, unexpected, duplicate or has
  /// a different shape; nothing is copied in that case.
  void load_state_dict(const std::vector<NamedTensor>& state) const;

  bool is_training() const { return model_->is_training(); }
  void train(bool on = true) const { model_->train(on); }
  void eval() const { train(false); }

  /// Puts the model in evaluation mode until the guard is destroyed.
  [[nodiscard]] EvalGuard eval_guard() const;

  /// The text files that are saved next to the weights. Only an ExportedModule has any, or a user's module
  /// with `const ModelFiles& files() const`.
  ModelFiles files() const { return model_->files(); }

  /// The safetensors files that are also saved there. Only an ExportedModule with a PEFT adapter has any, or
  /// a user's module with `TensorFiles tensor_files() const`.
  TensorFiles tensor_files() const { return model_->tensor_files(); }

  /// The labels over which the model's loss is a mean. Only some ExportedModules know them, or a user's
  /// module with `LossItems loss_items() const`. If they are known, accumulated batches are weighted by their
  /// number of labels, as in Hugging Face's Trainer, and label smoothing shifts labels as the loss does.
  LossItems loss_items() const { return model_->loss_items(); }

  /// Moves parameters and buffers; moved tensors get new storage.
  void to(torch::Device device) const { model_->to(device); }

  /// The module; null for TorchScript.
  std::shared_ptr<torch::nn::Module> module() const { return model_->module(); }

  /// The module as its class: both `as<NetImpl>()` and, for the holder, `as<Net>()` return a NetImpl&. If the
  /// model is several Modules, returns the one of this class. Throws an ArgumentError that names both types.
  template <class Given, class M = typename detail::ModuleOf<Given>::Type>
  M& as() const {
    return nth<M>(0, 1);
  }

  /// The module of this name in a model that is several Modules. Throws ArgumentError if there is none, or if
  /// it has another type.
  template <class Given>
  auto& as(const std::string& name) const {
    return module(name).template as<Given>();
  }

  /// The `index`th module of class M in a model that is several Modules; of any other model, the module
  /// itself. Throws ArgumentError unless there are `count` of them.
  template <class M>
  M& nth(std::size_t index, std::size_t count) const {
    static_assert(std::same_as<M, torch::jit::Module> || std::derived_from<M, torch::nn::Module>,
                  "etude: as<M>() returns a torch::nn module, or torch::jit::Module");
    std::vector<M*> found;
    if (auto* whole = pointer_to<M>()) found.push_back(whole);
    if (found.empty())
      for (const auto& part : modules())
        if (auto* module = part.template pointer_to<M>()) found.push_back(module);
    if (found.size() == count) return *found[index];
    throw_is_not(type_name<M>(), found.size(), count);
  }

  /// The modules of a model that is several Modules, in their order; empty for any other model.
  std::vector<Model> modules() const;

  /// The module of this name in a model that is several Modules. Throws ArgumentError if there is none.
  Model module(const std::string& name) const;

 private:
  template <class T>
  static std::shared_ptr<detail::AnyModel> make(T model);

  static std::vector<NamedTensor> each_once(std::vector<NamedTensor> tensors);

  /// The module as an M, or null.
  template <class M>
  M* pointer_to() const {
    if constexpr (std::same_as<M, torch::jit::Module>)
      return model_->script();
    else
      return dynamic_cast<M*>(model_->module().get());
  }

  [[noreturn]] void throw_is_not(std::string_view type, std::size_t found, std::size_t wanted) const;
  [[noreturn]] void refuse(const Tensors& inputs) const;

  std::shared_ptr<detail::AnyModel> model_;
};

/// Parameters, then buffers, of a module and its children under all their names: `Model::state_dict` for a
/// module by itself, which needs no `forward`. The tensors are the module's, not copies.
std::vector<NamedTensor> state_dict(const torch::nn::Module& module);

template <class T>
std::shared_ptr<detail::AnyModel> Model::make(T model) {
  if constexpr (std::derived_from<T, torch::jit::Module>) {
    return detail::script_model(std::move(model));
  } else if constexpr (detail::HoldsModule<T>) {
    if (model.is_empty()) throw ArgumentError("model: the module holder is empty; construct its module");
    return make<std::shared_ptr<typename T::ContainedType>>(model.ptr());
  } else if constexpr (!detail::is_shared_ptr<T>) {
    static_assert(
        !std::derived_from<T, torch::nn::Module>,
        "etude: a model is passed as std::make_shared<M>(...) or as the holder that TORCH_MODULE(M) makes");
    static_assert(
        std::derived_from<T, torch::nn::Module>,
        "etude: a model is a shared_ptr or ModuleHolder of a torch::nn::Module, or a torch::jit::Module");
  } else {
    using M = typename T::element_type;
    static_assert(std::derived_from<M, torch::nn::Module>,
                  "etude: a model must derive from torch::nn::Module");
    static_assert(detail::HasForward<M> || detail::HasNoForward<M>,
                  "etude: the model has no public forward that takes 1 to 8 torch::Tensor (by value or const "
                  "reference), const etude::Tensors& or const etude::Batch&");
    if (!model) throw ArgumentError("model: it is a null pointer");
    return std::make_shared<detail::NativeModel<M>>(std::move(model));
  }
}

}  // namespace etude::inline v0
