#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "etude/metrics/metrics.hpp"
#include "etude/reflect/enum.hpp"

namespace etude::metrics {

/// How the numbers of the classes become one:
///
/// - `automatic`: `binary` where there are two classes, else `macro`
/// - `binary`: that of class 1, of two
/// - `micro`: that of all decisions counted together
/// - `macro`: the mean over the classes that occur
/// - `weighted`: their mean, each with the number of its labels for a weight
/// - `none`: one number a class, under names that end in "_0", "_1", ...
ETUDE_ENUM(Average, automatic, binary, micro, macro, weighted, none);

/// `values`, `support` (the number of labels) and `occurs`: [C] each; on any device. Where no class occurs,
/// the result is `otherwise`. Throws ArgumentError for `binary` unless there are two classes, and for
/// `micro`.
Metrics averaged(const std::string& name, Average average, const at::Tensor& values,
                 const at::Tensor& support, const at::Tensor& occurs, double otherwise);

/// `average`, with what `automatic` means for that many classes in its place. Throws ArgumentError for
/// `binary` unless there are two.
Average resolved(Average average, std::int64_t classes);

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/average.ipp"
#endif
