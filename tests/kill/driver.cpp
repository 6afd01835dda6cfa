// driver TRAINEE kills|signals|exits
// Kills a training repeatedly, at random moments, and restarts it with the same command. Everything on the
// disk must be complete afterwards, and the result must equal that of the uninterrupted training. ETUDE_KILLS
// is the number of kills (20), ETUDE_SIGNALS that of each signal (3), ETUDE_SEED the seed of their moments.

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/folder.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/io/folder.hpp"
#include "etude/reflect/json.hpp"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr std::int64_t save_total_limit = 3;

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Parts>
void require(bool holds, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (!holds) throw Failure(fmt::format(format, std::forward<Parts>(parts)...));
}

struct Position {
  std::int64_t step = 0, micro_batch = 0;
  friend bool operator==(const Position&, const Position&) = default;
  std::string text() const { return fmt::format("step {}, micro-batch {}", step, micro_batch); }
};

// A running trainee, and its output.
class Trainee {
 public:
  std::vector<std::string> lines;

  Trainee(const std::vector<std::string>& command, const fs::path& errors) {
    int ends[2];
    require(::pipe(ends) == 0, "there is no pipe");
    for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
    std::vector<char*> words;
    for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    pid_ = ::fork();
    require(pid_ >= 0, "there is no other process");
    if (pid_ == 0) {
      const int log = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(log, STDERR_FILENO);
      ::execv(words[0], words.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  Trainee(const Trainee&) = delete;
  Trainee& operator=(const Trainee&) = delete;
  ~Trainee() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(out_);
  }

  void send(int signal) { ::kill(pid_, signal); }

  std::int64_t count(std::string_view word) const {
    return std::ranges::count_if(lines, [&](const auto& line) { return line.starts_with(word); });
  }

  // Waits for so many lines that begin with this word; false if it ended before.
  bool wait_for(std::string_view word, std::int64_t number = 1) {
    while (count(word) < number)
      if (!listen(minute)) return false;
    return true;
  }

  void listen_for(microseconds time) {
    for (const auto end = Clock::now() + time; !ended_ && Clock::now() < end;)
      listen(std::chrono::duration_cast<microseconds>(end - Clock::now()), /*must_come=*/false);
  }

  // Waits for its end. Returns its wait status, and how long it took.
  std::pair<int, microseconds> end() {
    const auto begin = Clock::now();
    while (listen(minute)) {
    }
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return {status, std::chrono::duration_cast<microseconds>(Clock::now() - begin)};
  }

  std::optional<std::int64_t> saved() const {
    for (auto line = lines.rbegin(); line != lines.rend(); ++line)
      if (line->starts_with("saved ")) return std::stoll(line->substr(6));
    return std::nullopt;
  }
  std::optional<Position> position() const {
    for (auto line = lines.rbegin(); line != lines.rend(); ++line)
      if (line->starts_with("at ")) {
        const auto middle = line->find(' ', 3);
        return Position{std::stoll(line->substr(3, middle - 3)), std::stoll(line->substr(middle))};
      }
    return std::nullopt;
  }

 private:
  static constexpr microseconds minute = std::chrono::minutes(1);

  // Reads output for at most this time; false if it has ended.
  bool listen(microseconds time, bool must_come = true) {
    if (ended_) return false;
    pollfd ready{out_, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(time.count() / 1000)) == 0) {
      require(!must_come, "the trainee has stopped printing");
      if (time.count() < 1000) std::this_thread::sleep_for(time);  // poll counts whole milliseconds
      return true;
    }
    char bytes[4096];
    const auto size = ::read(out_, bytes, sizeof bytes);
    if (size <= 0) {
      ended_ = true;
      return false;
    }
    text_.append(bytes, static_cast<std::size_t>(size));
    for (auto end = text_.find('\n'); end != text_.npos; end = text_.find('\n')) {
      lines.push_back(text_.substr(0, end));
      text_.erase(0, end + 1);
    }
    return true;
  }

  pid_t pid_ = -1;
  int out_ = -1;
  bool ended_ = false;
  std::string text_;
};

// The contents of an output folder, with every checkpoint verified.
struct Survey {
  std::map<std::int64_t, Position> checkpoints;   // by step, including those under replacement
  std::int64_t folders = 0;                       // named checkpoint-N
  std::optional<std::int64_t> best;               // the best step according to the newest checkpoint
  std::map<std::string, std::int64_t> leftovers;  // by the end of their names, such as "partial"
  std::int64_t replacing = 0;

  explicit Survey(const fs::path& folder) {
    std::int64_t newest = -1;
    if (!fs::exists(folder)) return;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const auto name = entry.path().filename().string();
      if (const auto step = etude::checkpoint_step(entry.path())) {
        ++folders;
        add(entry.path(), *step, newest);
      } else if (name == ".etude.lock") {
        continue;  // left by a killed process; the next one takes it over
      } else if (name.starts_with('.')) {
        const auto kind = name.starts_with(".latest") ? "latest" : name.substr(name.rfind('.') + 1);
        ++leftovers[kind];
        if (kind != "replaced") continue;
        const auto original = folder / name.substr(1, name.size() - 10);
        if (!fs::exists(original)) ++replacing, add(entry.path(), *etude::checkpoint_step(original), newest);
      } else {
        require(name == "latest" || name == "trainer_state.json", "{} is there", entry.path().string());
      }
    }
    require(folders > 1 || checkpoints.empty() || newest >= 0, "no manifest has a serial number");
    if (replacing > 0) return;
    if (folders > 1 || (folders == 1 && fs::is_symlink(folder / "latest"))) {
      require(fs::is_symlink(folder / "latest"), "there are checkpoints and no {}/latest", folder.string());
      etude::FolderReader(folder / "latest").verify();
    }
    require(!best || checkpoints.contains(*best), "the best checkpoint, of step {}, is gone",
            best.value_or(-1));
    // One more exists after a new one is written and before an old one is removed.
    require(folders <= save_total_limit + 1, "{} checkpoints are there", folders);
  }

  std::int64_t newest() const { return checkpoints.empty() ? -1 : checkpoints.rbegin()->first; }
  std::int64_t leftover(const std::string& kind) const {
    const auto found = leftovers.find(kind);
    return found == leftovers.end() ? 0 : found->second;
  }

 private:
  void add(const fs::path& path, std::int64_t step, std::int64_t& newest) {
    etude::FolderReader reader(path);
    reader.verify();
    const auto state = etude::parse_json(reader.text("trainer_state.json"));
    const auto progress = etude::parse_json(reader.text("training_progress.json"));
    require(state["global_step"] == step && reader.manifest()->global_step == step, "{} is of step {}",
            path.string(), state["global_step"].dump());
    checkpoints[step] = {step, progress["position"]["micro_batches"]};
    if (reader.manifest()->serial <= newest) return;
    newest = reader.manifest()->serial;
    best.reset();
    if (state["best_model_checkpoint"].is_string())
      best = etude::checkpoint_step(state["best_model_checkpoint"].get<std::string>());
  }
};

struct Variant {
  std::string name;
  std::vector<std::string> words;
  std::string expected = {};
};

class Driver {
 public:
  Driver(std::string trainee, std::uint64_t seed) : trainee_(std::move(trainee)), random_(seed) {
    for (auto& variant : variants_) {
      const toy::Folder folder;
      start(folder, variant.words).end();
      require(fs::exists(folder / "result"), "the unbroken run has failed: {}",
              toy::read_text(folder / "errors"));
      variant.expected = toy::read_text(folder / "result");
    }
    require(variants_[0].expected == variants_[1].expected,
            "saved behind the training, it comes out otherwise");
    require(variants_[0].expected != variants_[2].expected, "the early stop doesn't stop early");
  }

  void kill(int times) {
    for (int run = 0; kills_ < times; ++run)
      kill_one_run(variants_[static_cast<std::size_t>(run) % 4], times);
    fmt::print("{} kills: {} before the first step, {} in training, {} while writing or removing\n", kills_,
               early_, kills_ - early_ - writing_, writing_);
    require(writing_ >= times / 20 && kills_ - early_ - writing_ >= times / 20,
            "the kills have missed training or writing");
  }

  void signal(int times) {
    for (const int signal : {SIGTERM, SIGINT}) {
      int done = 0;
      for (int run = 0; done < times; ++run)
        signal_one_run(signal, variants_[static_cast<std::size_t>(run) % 4], done, times);
      for (int i = 0; i < std::max(1, times / 5); ++i) twice(signal);
      with_handler(signal);
    }
    fmt::print("{} signals in training, each answered with a checkpoint of that moment; {} came before\n",
               answered_, early_);
    require(answered_ >= times, "most signals came before the training began");
  }

  // A process that calls std::exit while its background thread writes a checkpoint.
  void exit() {
    const auto& variant = variants_[1];
    for (const std::int64_t step : {3, 5, 7, 17}) {
      const toy::Folder folder;
      try {
        auto words = variant.words;
        words.insert(words.end(), {"--slow", "30", "--exit", std::to_string(step)});
        auto trainee = start(folder, words);
        const auto status = trainee.end().first;
        require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "it ended with wait status {}", status);
        require(trainee.saved().value_or(0) < step - 1,
                "the checkpoint was written before the process ended");
        const Survey now(folder / "out");
        require(now.newest() == step - 1, "the newest is of step {} after {}", now.newest(), step);
        require(now.leftovers.empty(), "there is a leftover");
        start(folder, variant.words).end();
        compare(folder, variant);
      } catch (const std::exception& error) {
        report_where(folder, variant, error);
        throw;
      }
    }
    fmt::print("each process that called exit has finished its checkpoint first\n");
  }

 private:
  Trainee start(const toy::Folder& folder, std::vector<std::string> words) {
    words.insert(words.begin(), {trainee_, folder / "out", folder / "result"});
    return Trainee(words, folder / "errors");
  }

  std::int64_t draw(std::int64_t largest) {
    return std::uniform_int_distribution<std::int64_t>(0, largest)(random_);
  }

  // Waits for a random moment of loading, training, evaluating or writing; false if it ended before.
  bool wait_for_moment(Trainee& trainee, std::int64_t most_saves) {
    const auto saves = draw(most_saves);
    if (!(saves == 0 ? trainee.wait_for(draw(4) == 0 ? "started" : "training")
                     : trainee.wait_for("saved", saves)))
      return false;
    trainee.listen_for(microseconds(draw(40000)));
    return true;
  }

  void compare(const toy::Folder& folder, const Variant& variant) {
    std::istringstream result(toy::read_text(folder / "result")), expected(variant.expected);
    for (std::string line, wanted; std::getline(expected, wanted);) {
      require(static_cast<bool>(std::getline(result, line)), "the result ends before '{}'", wanted);
      require(line == wanted, "in the result is\n{}\nand unbroken it is\n{}", line, wanted);
    }
  }

  void kill_one_run(const Variant& variant, int times) {
    const toy::Folder folder;
    try {
      std::int64_t reported = -1;
      for (auto before = Survey(folder / "out");;) {
        auto trainee = start(folder, variant.words);
        const bool to_its_end = kills_ >= times || !wait_for_moment(trainee, 3);
        if (!to_its_end) trainee.send(SIGKILL);
        const auto status = trainee.end().first;
        const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        require(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "it ended with wait status {}",
                status);
        reported = std::max(reported, trainee.saved().value_or(-1));
        const Survey now(folder / "out");
        const bool cleaned = trainee.count("training") > 0;
        for (const auto& [kind, count] : now.leftovers)
          require(count <= (cleaned ? 1 : std::max<std::int64_t>(before.leftover(kind), 1)),
                  "{} .{} are left", count, kind);
        require(now.newest() >= reported, "the newest is of step {}, and {} was reported as saved",
                now.newest(), reported);
        require(now.newest() >= before.newest(), "the newest is of step {}, and was of {}", now.newest(),
                before.newest());
        if (!killed) {
          require(now.leftovers.empty(), "after the end there is a leftover");
          require(now.folders <= save_total_limit, "after the end there are {} checkpoints", now.folders);
          compare(folder, variant);
          return;
        }
        ++kills_;
        if (!trainee.position())
          ++early_;
        else if (!now.leftovers.empty() || now.folders > save_total_limit)
          ++writing_;
        before = now;
      }
    } catch (const std::exception& error) {
      report_where(folder, variant, error);
      throw;
    }
  }

  void signal_one_run(int signal, const Variant& variant, int& done, int times) {
    const toy::Folder folder;
    try {
      Position position;  // where it has to resume
      for (;;) {
        auto trainee = start(folder, variant.words);
        if (done < times && wait_for_moment(trainee, 2)) trainee.send(signal);
        const auto status = trainee.end().first;
        position = trainee.position().value_or(position);
        const Survey now(folder / "out");
        if (WIFEXITED(status)) {
          require(WEXITSTATUS(status) == 0, "it ended with status {}", WEXITSTATUS(status));
          compare(folder, variant);
          return;
        }
        require(WTERMSIG(status) == signal, "it ended by signal {}", WTERMSIG(status));
        ++done;
        if (trainee.count("training") == 0) {
          ++early_;
          continue;
        }
        ++answered_;
        require(now.checkpoints.contains(position.step) && now.checkpoints.at(position.step) == position,
                "it was at {}, and the newest checkpoint is of {}", position.text(),
                now.checkpoints.empty() ? "none" : now.checkpoints.rbegin()->second.text());
        require(now.leftovers.empty(), "there is a leftover");
      }
    } catch (const std::exception& error) {
      report_where(folder, variant, error);
      throw;
    }
  }

  // Sends a second signal while the checkpoint is written, which takes seconds.
  void twice(int signal) {
    const auto& variant = variants_[static_cast<std::size_t>(draw(2))];
    const toy::Folder folder;
    try {
      {
        auto trainee = start(folder, variant.words);
        trainee.wait_for("saved", 1 + draw(3));
        trainee.send(SIGKILL);
        trainee.end();
      }
      const Survey before(folder / "out");
      auto words = variant.words;
      words.insert(words.end(), {"--slow", "700"});  // for each of about ten files
      auto trainee = start(folder, words);
      require(trainee.wait_for("training"), "it has ended");
      trainee.listen_for(microseconds(draw(300000)));
      trainee.send(signal);
      trainee.listen_for(std::chrono::milliseconds(100) + microseconds(draw(1500000)));
      trainee.send(signal == SIGTERM && draw(1) == 0 ? SIGINT : signal);
      const auto [status, time] = trainee.end();
      require(WIFSIGNALED(status), "it ended with wait status {}", status);
      require(time < std::chrono::milliseconds(700), "after the second signal it went on for {} ms",
              time.count() / 1000);
      const Survey now(folder / "out");
      require(now.newest() >= before.newest(), "the newest is of step {}, and was of {}", now.newest(),
              before.newest());
      start(folder, variant.words).end();
      compare(folder, variant);
    } catch (const std::exception& error) {
      report_where(folder, variant, error);
      throw;
    }
  }

  // A program's own handler gets the signal after the checkpoint is written, and the program continues.
  void with_handler(int signal) {
    const auto& variant = variants_[0];
    const toy::Folder folder;
    auto words = variant.words;
    words.push_back("--handler");
    auto trainee = start(folder, words);
    trainee.wait_for("saved", 2);
    trainee.send(signal);
    const auto status = trainee.end().first;
    require(WIFEXITED(status) && WEXITSTATUS(status) == 3, "with a handler it ended with wait status {}",
            status);
    require(trainee.count("handled") == 1, "the program's handler was called {} times",
            trainee.count("handled"));
    require(trainee.lines.back() == fmt::format("interrupted {} true", signal), "it ends with '{}'",
            trainee.lines.back());
    require(Survey(folder / "out").checkpoints.at(trainee.position()->step) == *trainee.position(),
            "there is no checkpoint of that moment");
    start(folder, variant.words).end();
    compare(folder, variant);
  }

  void report_where(const toy::Folder& folder, const Variant& variant, const std::exception& error) {
    fmt::print("after {} kills, {}: {}\n", kills_, variant.name, error.what());
    for (const auto& entry : fs::directory_iterator(folder / "out"))
      fmt::print("  {}\n", entry.path().filename().string());
    fmt::print("{}\n", toy::read_text(folder / "errors"));
  }

  std::string trainee_;
  std::mt19937_64 random_;
  std::vector<Variant> variants_ = {{"plain", {}},
                                    {"asynchronous", {"--async", "--workers", "2"}},
                                    {"stopping early", {"--patience", "1"}},
                                    {"stopping early, with fsync", {"--patience", "1", "--fsync"}}};
  int kills_ = 0, early_ = 0, writing_ = 0, answered_ = 0;
};

std::uint64_t number_of(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::stoull(text) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (words.size() != 3) return 2;
  const auto seed = number_of("ETUDE_SEED", std::random_device{}());
  fmt::print("ETUDE_SEED={}\n", seed);
  std::fflush(stdout);
  try {
    Driver driver(words[1], seed);
    if (words[2] == "kills")
      driver.kill(static_cast<int>(number_of("ETUDE_KILLS", 20)));
    else if (words[2] == "signals")
      driver.signal(static_cast<int>(number_of("ETUDE_SIGNALS", 3)));
    else
      driver.exit();
  } catch (const std::exception& error) {
    fmt::print("failed: {}\n", error.what());
    return 1;
  }
  return 0;
}
