/// Reads one trainer_state.json and writes it again.

#include <filesystem>
#include <fstream>

#include "etude/checkpoint/resume.hpp"
#include "etude/checkpoint/trainer_state_text.hpp"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::filesystem::path from = argv[1];
  std::ofstream(argv[2]) << etude::trainer_state_text(etude::load_trainer_state(from.parent_path()));
}
