#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "etude/metrics/metrics.hpp"
#include "etude/reflect/enum.hpp"

namespace etude::inline v0::metrics {

/// How the values of the classes are averaged:
///
/// - `automatic`: `binary` for two classes, otherwise `macro`
/// - `binary`: the value of class 1, for two classes
/// - `micro`: the value over the decisions of all classes together
/// - `macro`: the mean over the classes that occur
/// - `weighted`: the same mean, weighted by each class's number of labels
/// - `none`: one value per class, with "_0", "_1", ... appended to the name
ETUDE_ENUM(Average, automatic, binary, micro, macro, weighted, none);

/// Averages `values` over the classes. `values`, `support` (the number of labels) and `occurs` are [C] each,
/// on any device. If no class occurs, the result is `otherwise`. Throws ArgumentError for `binary` unless
/// there are two classes, and for `micro`.
Metrics averaged(const std::string& name, Average average, const at::Tensor& values,
                 const at::Tensor& support, const at::Tensor& occurs, double otherwise);

/// Resolves `automatic` for this number of classes. Throws ArgumentError for `binary` unless there are two.
Average resolved(Average average, std::int64_t classes);

}  // namespace etude::inline v0::metrics
