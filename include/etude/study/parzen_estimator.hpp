#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "etude/study/distribution.hpp"
#include "etude/study/random_numbers.hpp"

namespace etude::inline v0::detail {

/// Values of hyperparameters as numbers, by name.
using Point = std::map<std::string, double>;

/// P(a <= z <= b) of a standard normal z, exact in both tails.
double normal_mass(double a, double b);

/// A density over a search space from observations: a mixture of one kernel for each observation and one wide
/// kernel over the middle, each a product over the hyperparameters. Kernels are normal distributions that are
/// truncated to the range, in the logarithm for a logarithmic range, and frequencies for choices. The width
/// of each is the distance to its farther neighbour, within limits (Bergstra et al. 2011; Falkner et al.
/// 2018, arXiv:1807.01774, for the product). The newest 25 observations weigh 1, the older ones less.
class ParzenEstimator {
 public:
  /// `observations` are ordered oldest first, and each has a value for every name in the space.
  ParzenEstimator(const std::map<std::string, Distribution>& space, const std::vector<Point>& observations);

  Point sample(RandomNumbers& random) const;

  /// The log density at a point; for whole numbers and choices, the log probability.
  double log_density(const Point& point) const;

 private:
  /// The kernels of one hyperparameter.
  struct Dimension {
    std::string name;
    Distribution distribution;
    bool is_log = false;
    double low = 0, high = 0, step = 0;  ///< bounds and step, as logarithms if `is_log`
    std::vector<double> means = {}, widths = {};
    std::vector<double> scales = {};                    ///< logarithms of the normalisation factors
    std::vector<std::vector<double>> frequencies = {};  ///< by kernel and choice

    Dimension(const std::string& its_name, const Distribution& its_distribution,
              const std::vector<Point>& observations);
    void set_widths();
    double sample(std::size_t kernel, RandomNumbers& random) const;
    /// Adds the logarithm of each kernel's density.
    void add_log_densities(double value, std::vector<double>& sums) const;
  };

  std::vector<double> weights_;
  std::vector<Dimension> dimensions_;
};

}  // namespace etude::inline v0::detail
