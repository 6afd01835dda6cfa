#include "etude/integrations/wandb/transaction_log.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "integrations/wandb/run_log.hpp"

namespace integrations_wandb_transaction_log_test {

using namespace std::string_literals;

TEST_CASE("a small record is one chunk, with a plain CRC-32 over its type and bytes") {
  // zlib.crc32(b"\x01abc"); LevelDB itself uses a masked CRC-32C.
  CHECK(etude::detail::wandb_framed("abc", 7) ==
        "\xA9\x20\x9D\x53\x03\0\x01"
        "abc"s);
}

TEST_CASE("blocks count from the file's first byte, and a rest too small for a chunk is zeros") {
  // 32768 - 32762 = 6 bytes are left of the block.
  CHECK(etude::detail::wandb_framed("abc", 32762) ==
        "\0\0\0\0\0\0"s + etude::detail::wandb_framed("abc", 32768));
  // After the file's header the first block has 32761 bytes: 7 for the chunk's header, and 32754 for the
  // record.
  CHECK(etude::detail::wandb_framed(std::string(32754, 'x'), 7).size() == 32761);
  const auto longer = etude::detail::wandb_framed(std::string(32755, 'x'), 7);
  CHECK(longer.size() == 32761 + 7 + 1);
  CHECK(longer[6] == 2);          // its first chunk
  CHECK(longer[32761 + 6] == 4);  // its last chunk
}

TEST_CASE("records of any size are read back, at any position in a block") {
  const toy::Folder folder;
  std::vector<std::string> records;
  etude::detail::WandbLog log(folder / "run-x.wandb");
  for (std::size_t size : {0UL, 1UL, 32740UL, 32754UL, 0UL, 5UL, 32761UL, 32768UL, 100000UL, 3UL})
    for (std::size_t more = 0; more < 9; ++more) {
      records.emplace_back(size + more, static_cast<char>('a' + more));
      REQUIRE(log.append(records.back()));
    }
  CHECK((toy::wandb_records(toy::read_text(folder / "run-x.wandb")) == records));
}

TEST_CASE("an existing file isn't appended to") {
  const toy::Folder folder;
  toy::write_text(folder / "run-x.wandb", "torn");
  CHECK_THROWS_AS(etude::detail::WandbLog(folder / "run-x.wandb"), etude::ArgumentError);
  CHECK(toy::read_text(folder / "run-x.wandb") == "torn");
}

}  // namespace integrations_wandb_transaction_log_test
