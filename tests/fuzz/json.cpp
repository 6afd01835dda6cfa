// Reads a text as JSON, as a trainer's state and as a manifest. A manifest gets its checksum added, because
// the fuzzer can't guess it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "etude/io/manifest.hpp"
#include "etude/reflect/json.hpp"
#include "etude/trainer_state.hpp"

namespace {

void require(bool good) {
  if (!good) std::abort();
}

void read_json(std::string_view text) {
  const auto json = etude::parse_json(text);
  require(etude::parse_json(etude::to_json_text(json)) == etude::to_json_value(json));
  const auto state = etude::from_json_value<etude::TrainerState>(json);
  const auto written = etude::to_json_text(state);
  require(etude::to_json_text(etude::from_json_text<etude::TrainerState>(written)) == written);
}

void read_manifest(std::string_view text) {
  const auto manifest = etude::from_manifest_text(text);
  for (const auto& [name, file] : manifest.files) {
    require(!name.empty() && !name.starts_with('/') && ("/" + name + "/").find("/../") == name.npos);
    require(name.find('\0') == name.npos && file.xxh3_128.size() == 32);
  }
  require(etude::from_manifest_text(etude::to_manifest_text(manifest)) == manifest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    read_json(text);
  } catch (const etude::ArgumentError&) {
  }
  const auto body = std::string(text.substr(0, text.rfind('\n')));
  for (const auto& manifest : {std::string(text), body + ",\n  \"checksum\": \"" +
                                                      etude::detail::checksum_of_text(body) + "\"\n}\n"}) {
    try {
      read_manifest(manifest);
    } catch (const etude::CheckpointError&) {
    }
  }
  return 0;
}
