#include "etude/tune/learning_rate_finder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/io/file_system.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {
namespace detail {

void check(const LearningRateFinderOptions& options) {
  check_fields(options);
  if (options.end_lr <= options.start_lr)
    throw ArgumentError(
        fmt::format("end_lr is {}: must be above start_lr, {}", options.end_lr, options.start_lr));
}

namespace {

/// The accumulation groups of successive epochs.
class EndlessGroups {
 public:
  EndlessGroups(const DataLoader& loader, std::int64_t size)
      : loader_(loader), size_(size), batches_(loader.begin_epoch(0)) {}

  std::vector<Batch> next(const TrainingDryRun& dry_run) {
    std::vector<Batch> group;
    for (bool is_new = false;;) {
      while (static_cast<std::int64_t>(group.size()) < size_) {
        auto batch = batches_.next();
        if (!batch) break;
        group.push_back(dry_run.on_device(*batch));
      }
      if (!group.empty()) return group;
      if (std::exchange(is_new, true)) throw DataError("train_dataset gave no batches");
      batches_ = loader_.begin_epoch(++epoch_);
    }
  }

 private:
  const DataLoader& loader_;
  std::int64_t size_, epoch_ = 0;
  BatchStream batches_;
};

}  // namespace

LearningRateCurve find_learning_rate(TrainingDryRun& dry_run, const DataLoader& loader,
                                     std::int64_t group_size, const LearningRateFinderOptions& options) {
  LearningRateCurve curve{.num_it = options.num_it, .suggestion = options.suggestion};
  EndlessGroups groups(loader, group_size);
  double mean = 0, best = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < options.num_it; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(options.num_it - 1);
    const double rate = options.start_lr * std::pow(options.end_lr / options.start_lr, share);
    dry_run.set_learning_rate(rate);
    const double loss = dry_run.step(groups.next(dry_run)).item<double>();
    if (!std::isfinite(loss)) {
      curve.diverged = true;
      break;
    }
    mean = options.beta * mean + (1 - options.beta) * loss;
    const double smoothed = mean / (1 - std::pow(options.beta, static_cast<double>(i + 1)));
    curve.learning_rates.push_back(rate);
    curve.losses.push_back(loss);
    curve.smoothed.push_back(smoothed);
    best = std::min(best, smoothed);
    if (options.stop_factor > 0 && smoothed > options.stop_factor * best) {
      curve.diverged = i + 1 < options.num_it;
      break;
    }
  }
  return curve;
}

namespace {

/// Finds the longest chain of decreasing losses and a suggested index in it, as fastai's `valley` does.
std::optional<std::size_t> valley(const std::vector<double>& losses) {
  std::vector<std::size_t> lengths(losses.size(), 1);
  std::size_t last = 0;
  for (std::size_t i = 1; i < losses.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      if (losses[i] < losses[j] && lengths[i] < lengths[j] + 1) lengths[i] = lengths[j] + 1;
    if (lengths[last] < lengths[i]) last = i;
  }
  if (losses.empty() || lengths[last] < 2) return {};
  // As in fastai, counts from the element before the chain if no rise is skipped; that may be before the
  // first element.
  const auto length = static_cast<double>(lengths[last]);
  const auto place = static_cast<double>(last) - length + std::floor(length / 3) + std::floor(length / 6);
  return static_cast<std::size_t>(std::max(place, 0.0));
}

/// The index where the loss falls fastest over the logarithm of the rate.
std::optional<std::size_t> steepest(const std::vector<double>& rates, const std::vector<double>& losses) {
  std::optional<std::size_t> place;
  double least = 0;
  for (std::size_t i = 0; i + 1 < losses.size(); ++i) {
    const double slope = (losses[i + 1] - losses[i]) / (std::log(rates[i + 1]) - std::log(rates[i]));
    if (slope < least) {
      least = slope;
      place = i;
    }
  }
  return place;
}

}  // namespace

}  // namespace detail

std::optional<double> LearningRateCurve::suggested(LearningRateSuggestion way) const {
  auto rates = learning_rates, losses_seen = smoothed;
  const auto begin = num_it > 0 ? static_cast<std::size_t>(num_it) / 10 : rates.size() / 10;
  const auto end = rates.size() - std::min<std::size_t>(rates.size(), 5);
  if (end > begin + 2) {
    const auto cut = [&](std::vector<double>& values) {
      values = {std::next(values.begin(), static_cast<std::ptrdiff_t>(begin)),
                std::next(values.begin(), static_cast<std::ptrdiff_t>(end))};
    };
    cut(rates);
    cut(losses_seen);
  }
  if (rates.size() < 2) return {};
  if (way == LearningRateSuggestion::minimum) {
    const auto least = std::ranges::min_element(losses_seen);
    if (least == losses_seen.begin()) return {};
    return rates[static_cast<std::size_t>(least - losses_seen.begin())] / 10;
  }
  const auto place = way == LearningRateSuggestion::valley ? detail::valley(losses_seen)
                                                           : detail::steepest(rates, losses_seen);
  if (!place) return {};
  return rates[*place];
}

namespace detail {

namespace {

/// The visible part of the curve: losses far above the first would flatten the rest.
struct Frame {
  explicit Frame(const LearningRateCurve& curve) {
    if (curve.smoothed.empty()) return;
    left = std::log10(curve.learning_rates.front());
    right = std::max(std::log10(curve.learning_rates.back()), left + 1e-9);
    low = *std::ranges::min_element(curve.smoothed);
    high = *std::ranges::max_element(curve.smoothed);
    const double fall = curve.smoothed.front() - low;
    if (fall > 0) high = std::min(high, curve.smoothed.front() + fall);
    if (!(high > low)) high = low + 1;
  }
  double x(double rate) const { return (std::log10(rate) - left) / (right - left); }
  double y(double loss) const { return std::clamp((loss - low) / (high - low), 0.0, 1.0); }
  double left = 0, right = 1, low = 0, high = 1;
};

std::string suggestions_text(const LearningRateCurve& curve) {
  std::string text;
  for (const auto way :
       {LearningRateSuggestion::valley, LearningRateSuggestion::steep, LearningRateSuggestion::minimum})
    if (const auto rate = curve.suggested(way))
      text += fmt::format("{}{}: {:.2e}", text.empty() ? "" : ", ", way, *rate);
  return text.empty() ? "no suggestion: the loss doesn't fall" : text;
}

}  // namespace

void draw(const LearningRateCurve& curve, const std::filesystem::path& path) {
  write_file(default_file_system(), path, curve.svg());
}

}  // namespace detail

std::string LearningRateCurve::text(int width, int height) const {
  if (smoothed.empty()) return "no step had a finite loss\n";
  const detail::Frame frame(*this);
  const auto columns = static_cast<std::size_t>(std::max(width - 10, 10));
  const auto rows = static_cast<std::size_t>(std::max(height, 3));
  std::vector<std::string> lines(rows, std::string(columns, ' '));
  const auto place = [](double share, std::size_t count) {
    return static_cast<std::size_t>(std::lround(share * static_cast<double>(count - 1)));
  };
  if (const auto rate = suggested())
    for (auto& line : lines) line[place(frame.x(*rate), columns)] = '|';
  for (std::size_t i = 0; i < smoothed.size(); ++i)
    lines[rows - 1 - place(frame.y(smoothed[i]), rows)][place(frame.x(learning_rates[i]), columns)] = '*';
  std::string text;
  for (std::size_t i = 0; i < rows; ++i) {
    const auto label = i == 0          ? fmt::format("{:.3g}", frame.high)
                       : i + 1 == rows ? fmt::format("{:.3g}", frame.low)
                                       : std::string();
    text += fmt::format("{:>9}|{}\n", label, lines[i].substr(0, lines[i].find_last_not_of(' ') + 1));
  }
  const auto first = fmt::format("{:.1e}", learning_rates.front());
  const auto last = fmt::format("{:.1e}", learning_rates.back());
  text += fmt::format("{:>9}+{}\n{:>10}{}{:>{}}\n", "", std::string(columns, '-'), "", first, last,
                      columns - first.size());
  return text + detail::suggestions_text(*this) + "\n";
}

// Not a page with the charts' script, since documents and trackers show images without scripts.
std::string LearningRateCurve::svg() const {
  constexpr double width = 640, height = 400, left = 60, right = 20, top = 20, bottom = 50;
  const detail::Frame frame(*this);
  const auto x = [&](double rate) { return left + frame.x(rate) * (width - left - right); };
  const auto y = [&](double loss) { return height - bottom - frame.y(loss) * (height - top - bottom); };
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
  const auto line = [&](double x1, double y1, double x2, double y2, const char* colour) {
    text += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1,
                        y1, x2, y2, colour);
  };
  const auto label = [&](double at_x, double at_y, const char* anchor, const std::string& words) {
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", at_x, at_y, anchor,
                        words);
  };
  for (double power = std::ceil(frame.left - 1e-9); power <= frame.right + 1e-9; power += 1) {
    line(x(std::pow(10, power)), top, x(std::pow(10, power)), height - bottom, "#ddd");
    label(x(std::pow(10, power)), height - bottom + 16, "middle", fmt::format("1e{}", power));
  }
  for (int i = 0; i <= 4; ++i) {
    const double loss = frame.low + (frame.high - frame.low) * i / 4;
    line(left, y(loss), width - right, y(loss), "#ddd");
    label(left - 6, y(loss) + 4, "end", fmt::format("{:.3g}", loss));
  }
  label((left + width - right) / 2, height - 10, "middle",
        "learning rate (" + detail::suggestions_text(*this) + ")");
  label(14, top - 6, "start", "loss");
  const auto curve_of = [&](const std::vector<double>& values, const char* style) {
    text += fmt::format("<polyline fill=\"none\" {} points=\"", style);
    for (std::size_t i = 0; i < values.size(); ++i)
      text += fmt::format("{}{:.1f},{:.1f}", i == 0 ? "" : " ", x(learning_rates[i]), y(values[i]));
    text += "\"/>\n";
  };
  curve_of(losses, "stroke=\"#9bc\" stroke-width=\"1\"");
  curve_of(smoothed, "stroke=\"#136\" stroke-width=\"2\"");
  for (const auto way :
       {LearningRateSuggestion::valley, LearningRateSuggestion::steep, LearningRateSuggestion::minimum}) {
    const auto rate = suggested(way);
    if (!rate) continue;
    line(x(*rate), top, x(*rate), height - bottom, way == suggestion ? "#c30" : "#e9a");
    label(x(*rate) + 3, top + 12 + 14 * static_cast<int>(way), "start", std::string(to_string(way)));
  }
  return text + "</svg>\n";
}

}  // namespace etude::inline v0
