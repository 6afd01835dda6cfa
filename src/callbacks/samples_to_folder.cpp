#include "etude/callbacks/samples_to_folder.hpp"

#include <fmt/format.h>

#include "etude/any_trainer.hpp"

namespace etude::inline v0 {

void SamplesToFolderCallback::on(const LogSamples& e) {
  if (!e.state.is_world_process_zero) return;
  const auto step = detail::log_path(e.args, folder) / fmt::format("step-{}", e.state.global_step);
  auto& files = e.trainer.options().files();
  for (const auto& sample : e.samples) {
    const auto path = step / sample.name;
    files.create_directories(path.parent_path());
    write_file(files, path.string() + std::string(detail::sample_extension(sample)),
               detail::sample_file(sample));
    if (!sample.caption.empty()) write_file(files, path.string() + ".caption.txt", sample.caption + '\n');
  }
}

}  // namespace etude::inline v0
