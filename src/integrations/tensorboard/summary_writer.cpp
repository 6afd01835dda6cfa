#include "etude/integrations/tensorboard/summary_writer.hpp"

#include <algorithm>
#include <cmath>
#include <protozero/pbf_writer.hpp>
#include <variant>

#include "etude/base/utf8.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/integrations/tensorboard/event_file.hpp"
#include "etude/integrations/tensorboard/graph.hpp"
#include "etude/integrations/tensorboard/histogram.hpp"
#include "etude/metrics/sample_file.hpp"

namespace etude::inline v0 {
namespace detail::tensorboard {

namespace {

using Message = protozero::pbf_writer;

void put_metadata(Message& value, std::string_view plugin, std::string_view content) {
  Message metadata(value, 9), data(metadata, 1);
  data.add_string(1, plugin.data(), plugin.size());
  if (!content.empty()) data.add_bytes(2, content.data(), content.size());
}

/// Adds a google.protobuf.Value. A non-finite number becomes text, because it would make the whole page fail.
void put_value(Message& entry, const nlohmann::ordered_json& json) {
  Message value(entry, 2);
  if (json.is_boolean())
    value.add_bool(4, json.get<bool>());
  else if (json.is_number() && std::isfinite(json.get<double>()))
    value.add_double(2, json.get<double>());
  else if (json.is_number())
    value.add_string(3, std::isnan(json.get<double>()) ? "NaN"
                        : json.get<double>() > 0       ? "Infinity"
                                                       : "-Infinity");
  else if (json.is_string())
    value.add_string(3, mended_utf8(json.get<std::string>()));
  else
    value.add_string(3, json_line(json));
}

}  // namespace

}  // namespace detail::tensorboard

SummaryWriter::SummaryWriter(const std::filesystem::path& log_dir)
    : log_dir_(log_dir), file_(detail::tensorboard::new_event_file(log_dir_, path_)) {
  add_event(0, [](auto& event) {
    event.add_string(3, "brain.Event:2");
    detail::tensorboard::Message source(event, 10);
    source.add_string(1, "etude.integrations.tensorboard");
  });
}

template <class Fill>
void SummaryWriter::add_event(std::int64_t global_step, Fill fill) {
  std::string record(detail::tensorboard::header_size, '\0');
  last_time_ = std::max(last_time_, detail::unix_seconds());
  detail::tensorboard::Message event(record);
  event.add_double(1, last_time_);
  if (global_step != 0) event.add_int64(2, global_step);
  fill(event);
  detail::tensorboard::seal(record);
  file_.append(record);
}

template <class Fill>
void SummaryWriter::add_value(const std::string& tag, std::int64_t global_step, Fill fill) {
  add_event(global_step, [&](auto& event) {
    detail::tensorboard::Message summary(event, 5), value(summary, 1);
    value.add_string(1, mended_utf8(tag));  // readers stop at a record with invalid UTF-8
    fill(value);
  });
}

void SummaryWriter::add_scalar(std::string_view tag, double value, std::int64_t global_step) {
  add_scalars({{std::string(tag), value}}, global_step);
}

void SummaryWriter::add_scalars(const std::vector<std::pair<std::string, double>>& values,
                                std::int64_t global_step) {
  if (values.empty()) return;
  add_event(global_step, [&](auto& event) {
    detail::tensorboard::Message summary(event, 5);
    for (const auto& [tag, number] : values) {
      detail::tensorboard::Message value(summary, 1);
      value.add_string(1, mended_utf8(tag));
      value.add_float(2, static_cast<float>(number));
    }
  });
}

void SummaryWriter::add_text(std::string_view tag, std::string_view text, std::int64_t global_step) {
  add_value(std::string(tag) + "/text_summary", global_step, [&](auto& value) {
    {
      detail::tensorboard::Message tensor(value, 8);
      tensor.add_enum(1, 7);  // DT_STRING
      {
        detail::tensorboard::Message shape(tensor, 2), dim(shape, 2);
        dim.add_int64(1, 1);
      }
      tensor.add_bytes(8, mended_utf8(text));
    }
    detail::tensorboard::put_metadata(value, "text", "");
  });
}

void SummaryWriter::add_sample(std::string_view tag, const Sample& sample, std::int64_t global_step) {
  if (const auto* text = std::get_if<std::string>(&sample.content)) return add_text(tag, *text, global_step);
  const auto file = detail::sample_file(sample);
  add_value(std::string(tag), global_step, [&](auto& value) {
    if (const auto* image = std::get_if<ImageSample>(&sample.content)) {
      detail::tensorboard::Message message(value, 4);
      message.add_int32(1, static_cast<std::int32_t>(image->pixels.size(0)));
      message.add_int32(2, static_cast<std::int32_t>(image->pixels.size(1)));
      message.add_int32(3, static_cast<std::int32_t>(image->pixels.size(2)));
      message.add_bytes(4, file);
    } else {
      const auto& [frames, sample_rate] = std::get<AudioSample>(sample.content);
      detail::tensorboard::Message message(value, 6);
      message.add_float(1, static_cast<float>(sample_rate));
      message.add_int64(2, frames.size(1));
      message.add_int64(3, frames.size(0));
      message.add_bytes(4, file);
      message.add_string(5, "audio/wav");
    }
  });
  // The caption is a text, because TensorBoard has one description for all steps of a tag, and its fast
  // loader drops it.
  if (!sample.caption.empty()) add_text(tag, sample.caption, global_step);
}

std::int64_t SummaryWriter::add_histogram(std::string_view tag, const at::Tensor& values,
                                          std::int64_t global_step) {
  const auto histogram = detail::tensorboard::histogram_of(values);
  if (histogram.num > 0)
    add_value(std::string(tag), global_step, [&](auto& value) {
      detail::tensorboard::Message histo(value, 5);
      histo.add_double(1, histogram.min);
      histo.add_double(2, histogram.max);
      histo.add_double(3, histogram.num);
      histo.add_double(4, histogram.sum);
      histo.add_double(5, histogram.sum_squares);
      histo.add_packed_double(6, histogram.limits.begin(), histogram.limits.end());
      histo.add_packed_double(7, histogram.counts.begin(), histogram.counts.end());
    });
  return histogram.not_finite;
}

void SummaryWriter::add_graph(const Model& model) {
  const auto graph = detail::tensorboard::graph_of(model);
  add_event(0, [&](auto& event) { event.add_bytes(4, graph); });
}

void SummaryWriter::add_hparams(const std::vector<std::pair<std::string, nlohmann::ordered_json>>& hparams,
                                double started) {
  std::string content;
  {
    detail::tensorboard::Message data(content), session(data, 3);
    for (const auto& [name, json] : hparams) {
      if (json.is_null()) continue;
      detail::tensorboard::Message entry(session, 1);
      entry.add_string(1, mended_utf8(name));
      detail::tensorboard::put_value(entry, json);
    }
    session.add_double(5, started);
  }
  add_value("_hparams_/session_start_info", 0,
            [&](auto& value) { detail::tensorboard::put_metadata(value, "hparams", content); });
}

void SummaryWriter::add_session_end(SessionStatus status) {
  std::string content;
  {
    detail::tensorboard::Message data(content), session(data, 4);
    session.add_enum(1, static_cast<std::int32_t>(status));
    session.add_double(2, detail::unix_seconds());
  }
  add_value("_hparams_/session_end_info", 0,
            [&](auto& value) { detail::tensorboard::put_metadata(value, "hparams", content); });
}

void SummaryWriter::add_session_start(std::int64_t global_step) {
  add_event(global_step, [](auto& event) {
    detail::tensorboard::Message session(event, 7);
    session.add_enum(1, 1);
  });
}

void SummaryWriter::add_record(std::string_view record) { file_.append(record); }

}  // namespace etude::inline v0
