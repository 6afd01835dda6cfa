#include "etude/parallel/shared_segment.hpp"

#ifdef __linux__
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "etude/base/read_file.hpp"
#include "etude/io/descriptor.hpp"

namespace etude::inline v0::detail {

ProcessState process_state(std::int64_t pid) {
  const auto text = read_file(fmt::format("/proc/{}/stat", pid)).value_or("");
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState result;
  std::string skipped;
  fields >> result.state;
  for (int i = 0; i < 18; ++i) fields >> skipped;
  fields >> result.start;
  return result;
}

std::string shared_memory_name(std::uint64_t token) { return fmt::format("etude-{:016x}", token); }

std::string error_text(const char* call) {
  return fmt::format("{} failed: {}", call, std::generic_category().message(errno));
}

SharedMemoryPart make_shared_memory(Descriptor& file, SharedMemoryOffer& offer, std::size_t bytes) {
  const auto machine = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::size_t>(::sysconf(_SC_PAGE_SIZE));
  if (bytes > machine / 4)  // the system would kill processes rather than refuse
    return {.why_not =
                fmt::format("{} bytes are more than a quarter of the machine's memory, {}", bytes, machine)};
  std::random_device random;
  offer.token = (std::uint64_t{random()} << 32) + random();
  file = Descriptor(::memfd_create(shared_memory_name(offer.token).c_str(), MFD_CLOEXEC));
  if (!file) return {.why_not = error_text("memfd_create")};
  const auto size = static_cast<::off_t>(bytes);
  // Without this, missing memory would raise SIGBUS later.
  if (uninterrupted([&] { return ::fallocate(file.get(), 0, 0, size); }) != 0)
    return {.why_not = error_text("fallocate")};
  auto segment = std::make_unique<SharedSegment>(file.get(), bytes);
  if (!*segment) return {.why_not = error_text("mmap")};
  segment->header().token = offer.token;
  offer.descriptor = file.get();
  return {.segment = std::move(segment)};
}

SharedMemoryPart map_shared_memory(const SharedMemoryOffer& offer, std::size_t bytes) {
  const auto path = fmt::format("/proc/{}/fd/{}", offer.pid, offer.descriptor);
  std::array<char, 64> target{};
  const auto length = ::readlink(path.c_str(), target.data(), target.size() - 1);
  if (length < 0) return {.why_not = error_text(("readlink " + path).c_str())};
  // On another machine, or in another container, this number may belong to another process.
  if (std::string_view(target.data()).find(shared_memory_name(offer.token)) == std::string_view::npos)
    return {.why_not = fmt::format("{} isn't rank 0's memory: the ranks aren't on one system", path)};
  const Descriptor file(uninterrupted([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC); }));
  if (!file) return {.why_not = error_text(("open " + path).c_str())};
  auto segment = std::make_unique<SharedSegment>(file.get(), bytes);
  if (!*segment) return {.why_not = error_text("mmap")};
  if (segment->header().token != offer.token)
    return {.why_not = path + " has other content than rank 0 wrote"};
  return {.segment = std::move(segment)};
}

std::byte* SharedSegment::slots(std::int64_t world) const {
  return static_cast<std::byte*>(begin_) + sizeof(SharedHeader) +
         static_cast<std::size_t>(world) * sizeof(RankProgress);
}

std::size_t SharedSegment::size(std::int64_t world, std::int64_t slots, std::int64_t slot_bytes) {
  const auto slot = sizeof(PieceHeader) + static_cast<std::size_t>(slot_bytes);
  return sizeof(SharedHeader) +
         static_cast<std::size_t>(world) * (sizeof(RankProgress) + static_cast<std::size_t>(slots) * slot);
}

}  // namespace etude::inline v0::detail
#endif
