#include "etude/base/progress_bar.hpp"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "etude/base/console.hpp"
#include "etude/base/counting.hpp"
#include "etude/base/message.hpp"

namespace etude::inline v0 {

void detail::RateWindow::add(double seconds, std::int64_t done) {
  constexpr double window = 15;
  constexpr std::size_t fewest = 6;  // 5 intervals
  if (done == samples_.back().second) return;
  samples_.emplace_back(seconds, done);
  while (samples_.size() > fewest && samples_[1].first <= seconds - window) samples_.pop_front();
}

double detail::RateWindow::rate() const {
  const auto& [begin, done_then] = samples_.front();
  const auto& [end, done] = samples_.back();
  return end > begin && done > done_then ? static_cast<double>(done - done_then) / (end - begin) : 0;
}

ProgressBar::ProgressBar(std::FILE* out, std::string title, std::optional<std::int64_t> total,
                         std::int64_t done_before)
    : out_(out),
      title_(std::move(title)),
      total_(total),
      done_(done_before),
      done_before_(done_before),
      terminal_(detail::is_drawable(out)),
      window_(done_before) {
  if (terminal_) detail::Console::instance().add(this, out_, view());
}

ProgressBar::~ProgressBar() { detail::Console::instance().remove(this); }

void ProgressBar::update(std::int64_t done) {
  done_ = done;
  if (const auto now = Clock::now(); now - sampled_ >= std::chrono::milliseconds(100)) sample(now);
}

void ProgressBar::set_fields(Fields fields) {
  fields_ = std::move(fields);
  if (terminal_) draw();
}

void ProgressBar::set_title(std::string title) {
  title_ = std::move(title);
  if (terminal_) draw();
}

void ProgressBar::pause() {
  if (!pause_begun_) pause_begun_ = Clock::now();
}

void ProgressBar::resume() {
  if (!pause_begun_) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - *pause_begun_).count();
  if (std::exchange(pause_count_, done_) != done_) last_pause_ = 0;
  last_pause_ += seconds;
  paused_ += seconds;
  pause_begun_.reset();
}

void ProgressBar::close() {
  auto last = view();
  const double seconds = active_seconds(Clock::now());
  last.rate = seconds > 0 ? static_cast<double>(done_ - done_before_) / seconds : 0;
  using State = detail::ProgressView::State;
  last.state = done_ >= total_.value_or(done_) ? State::complete : State::stopped;
  if (terminal_)
    detail::Console::instance().remove(this, &last);
  else if (done_ != done_before_)  // A file needs no line if nothing happened.
    write_text(out_, plain_progress_line(last) + "\n");
}

void ProgressBar::sample(Clock::time_point now) {
  sampled_ = now;
  window_.add(active_seconds(now), done_);
  if (terminal_ || now - drawn_ >= std::chrono::seconds(10)) draw();
}

void ProgressBar::draw() {
  drawn_ = Clock::now();
  if (terminal_)
    detail::Console::instance().draw(this, view());
  else
    write_text(out_, plain_progress_line(view()) + "\n");
}

double ProgressBar::active_seconds(Clock::time_point now) const {
  return std::chrono::duration<double>(pause_begun_.value_or(now) - begun_).count() - paused_;
}

std::optional<double> ProgressBar::time_left() const {
  const double rate = window_.rate();
  if (!total_ || rate <= 0) return {};
  const auto left = static_cast<double>(*total_ - done_) / rate;
  if (pauses_every_ <= 0) return left;
  const auto pauses_until = [&](std::int64_t count) {
    return detail::intervals_in(static_cast<double>(count), pauses_every_);
  };
  return left + last_pause_ * (pauses_until(*total_) - pauses_until(done_));
}

detail::ProgressView ProgressBar::view() const {
  return {.title = title_,
          .done = done_,
          .total = total_,
          .elapsed = std::chrono::duration<double>(Clock::now() - begun_).count(),
          .rate = window_.rate(),
          .left = time_left(),
          .fields = fields_};
}

}  // namespace etude::inline v0
