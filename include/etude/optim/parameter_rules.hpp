#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/optim/parameter_groups.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The options that a rule sets for the parameters that it names. Unset ones stay as they were.
struct ParameterSettings {
  ETUDE_STRUCT(ParameterSettings, (std::optional<double>, lr, "the initial learning rate" | at_least(0)),
               (std::optional<double>, lr_factor,
                "a factor of the initial learning rate, instead of lr" | at_least(0)),
               (std::optional<double>, weight_decay,
                "the weight decay, of biases and norms too" | at_least(0)),
               (std::optional<bool>, frozen,
                "true to freeze them: requires_grad is false, so nothing is computed for them"));
};

/// Settings for the parameters that a pattern matches. The pattern matches the name of a parameter, or of a
/// module and so all parameters in it. `*` stands for any text, dots included, `?` for one letter, and
/// `[abc]` for one of these, as in fnmatch(3): "encoder", "*.bias", "encoder.layers.[0-3]".
struct ParameterRule {
  std::string pattern;
  ParameterSettings settings = {};
};

/// Rules are applied in order. Each changes only what it sets, so several can apply to a parameter: with
/// {{"encoder", {.lr = 1e-5}}, {"*.bias", {.weight_decay = 0}}}, the biases of the encoder have both. If two
/// rules set the same option, the later one wins, so put general rules first and exceptions after them.
using ParameterRules = std::vector<ParameterRule>;

namespace detail {
/// True if a pattern matches the whole name.
bool matches(const std::string& pattern, const std::string& name);
/// At most three names, the most similar to a pattern first.
std::vector<std::string> similar_names(std::string_view pattern, const std::vector<std::string>& names);
}  // namespace detail

/// True if a pattern matches this parameter, or a module that contains it.
bool names_parameter(const std::string& pattern, std::string_view parameter);

/// Reads rules such as "encoder: lr=1e-5, frozen=true; *.bias: weight_decay=0". Throws ArgumentError for
/// anything else; `where` says in the message where the text comes from.
ParameterRules read_parameter_rules(std::string_view text, std::string_view where);

/// Throws an ArgumentError that lists every value that isn't allowed, and every pattern that matches no
/// parameter, with the most similar names.
void check_parameter_rules(const ParameterRules& rules, const NamedTensors& parameters);

/// Divides groups, whose default learning rate is `lr`, by rules: a parameter stays where it is unless a rule
/// changes its options; parameters with the same new options form a group. New groups come last, in the order
/// of their first parameters. Parameters that a rule freezes are also in a group, so that the optimizer picks
/// them up when they are unfrozen.
std::vector<ParameterGroup> with_rules(std::vector<ParameterGroup> groups, const ParameterRules& rules,
                                       double lr);

/// Sets `requires_grad` of the parameters that rules freeze or unfreeze.
void freeze_by_rules(const ParameterRules& rules, const NamedTensors& parameters);

/// The depth of each parameter in a model, by its name: 0 before the first numbered layer ("h.0.",
/// "layers.0." or "encoder.layer.0."; the first number in a name counts), then 1, 2, ... in each numbered
/// layer and up to the next, and one more after the last. `parameters` are in the order in which they are
/// registered. Throws ArgumentError if there is no numbered layer.
std::vector<std::size_t> layer_depths(const NamedTensors& parameters);

/// Divides groups, whose default learning rate is `lr`, by depth, with the learning rate lr * decay^(D - d)
/// at depth d of 0 to D: the deepest parameters, such as a head after the layers, have the full rate, and
/// embeddings the lowest. This is the layer-wise decay in BEiT's fine-tuning (Bao et al. 2021,
/// arXiv:2106.08254, LayerDecayValueAssigner); in ELECTRA's (Clark et al. 2020, arXiv:2003.10555), all layers
/// below the head get one more factor of decay. `parameters` are the parameters of all groups, in the order
/// that `layer_depths` needs.
std::vector<ParameterGroup> with_layerwise_decay(std::vector<ParameterGroup> groups,
                                                 const NamedTensors& parameters, double lr, double decay);

}  // namespace etude::inline v0
