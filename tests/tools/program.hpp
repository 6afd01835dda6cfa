#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/child.hpp"
#include "common/fault_of.hpp"
#include "common/folder.hpp"

/// The result of running the program `etude` in a shell.
namespace toy {

struct Ran {
  std::string end;  ///< "exit 0"
  std::string out, err;

  nlohmann::ordered_json json() const { return nlohmann::ordered_json::parse(out); }
};

/// True if the text has no control characters and no colours.
inline bool is_plain(std::string_view text) {
  return std::ranges::none_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n') || byte == 0x7f;
  });
}

inline Ran run_program(const std::string& program, std::vector<std::string> words) {
  const Folder folder;
  const std::string out = folder / "out", err = folder / "err";
  words.insert(words.begin(), program);
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  const auto child = ::fork();
  if (child == 0) {
    constexpr auto flags = O_WRONLY | O_CREAT | O_TRUNC;
    ::dup2(::open(out.c_str(), flags, 0600), STDOUT_FILENO);
    ::dup2(::open(err.c_str(), flags, 0600), STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  auto end = end_of(child, std::chrono::minutes(3));
  return {std::move(end), read_text(out), read_text(err)};
}

template <class... Words>
Ran etude_program(const Words&... words) {
  return run_program(ETUDE_TOOL, {std::string(words)...});
}

/// The bytes of a safetensors file.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return length + header + data;
}

}  // namespace toy
