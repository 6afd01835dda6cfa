#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "etude/data/batch.hpp"
#include "etude/reflect/enum.hpp"

namespace etude::inline v0 {

/// The dtype of a file of tokens. With uint8 each byte is a token, so any text file will do.
ETUDE_ENUM(TokenType, uint8, uint16, uint32);

struct TokenWindowsOptions {
  std::int64_t context = 1;                 ///< number of tokens in a window
  std::optional<std::int64_t> stride = {};  ///< tokens from the start of a window to the next; unset: context
  TokenType type = TokenType::uint16;
  std::optional<std::int64_t> vocab_size = {};  ///< every token read must be less than this
};

/// A dataset of windows of a long text, for a language model. The text is a file of token ids without a
/// header, little-endian, such as nanoGPT's train.bin. It is memory-mapped, so it may be larger than memory,
/// and must not be truncated while it is in use.
///
/// An example's input is the `context` tokens from position `index * stride` on, and its labels are the
/// tokens that follow each of them; both are int64 [context]. Tokens at the end that don't fill a window are
/// left out. With the default stride each token is predicted once per epoch; with a smaller one the windows
/// overlap, so that tokens are also predicted after longer contexts.
class TokenWindows {
 public:
  using BatchType = Batch;
  using BatchRequestType = c10::ArrayRef<std::size_t>;

  /// Throws ArgumentError for options out of range; DataError for a file that can't be read, has an
  /// incomplete token or is shorter than context + 1 tokens.
  TokenWindows(const std::filesystem::path& file, const TokenWindowsOptions& options);

  std::size_t size() const;

  /// The windows with these indices: input and labels, int64 [windows, context]. Throws DataError for an
  /// index out of range, and for a token that isn't less than `vocab_size`, with its position.
  Batch get_batch(BatchRequestType indices) const;

  /// A checksum of a few windows, so that resuming a training with another text gives a warning.
  std::string fingerprint() const;

 private:
  template <class Token>
  void read(std::size_t index, std::int64_t* inputs, std::int64_t* labels) const;
  std::int64_t token_count() const;

  std::filesystem::path file_;
  TokenWindowsOptions options_;
  at::Tensor bytes_;  // the mapped file
};

}  // namespace etude::inline v0
