#include "etude/any_trainer.hpp"

#include "etude/events.hpp"

namespace etude::inline v0 {

void Context::log_samples(const std::vector<Sample>& samples) const { trainer.log_samples(samples); }

void Context::log_text(std::string_view name, std::string_view text) const {
  log_samples({text_sample(name, text)});
}

void Context::log_image(std::string_view name, const at::Tensor& image, std::string_view caption) const {
  log_samples({image_sample(name, image, caption)});
}

void Context::log_audio(std::string_view name, const at::Tensor& audio, std::int64_t sample_rate,
                        std::string_view caption) const {
  log_samples({audio_sample(name, audio, sample_rate, caption)});
}

}  // namespace etude::inline v0
