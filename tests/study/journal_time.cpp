#include "etude/study/journal_time.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "common/folder.hpp"
#include "etude/study/study.hpp"

namespace study_journal_time_test {

using etude::detail::seconds_of_journal_time;

// The expected numbers are from `date -u -d TIME +%s`.

TEST_CASE("the forms of Python's isoformat are understood") {
  CHECK(seconds_of_journal_time("1970-01-01T00:00:00") == 0);
  CHECK(seconds_of_journal_time("2024-02-29T12:30:05+00:00") == 1709209805);
  CHECK(seconds_of_journal_time("2024-02-29T12:30:05.250000+00:00") == 1709209805.25);
  CHECK(seconds_of_journal_time("1969-12-31T23:59:59.500000") == -0.5);
}

TEST_CASE("texts of another form say nothing") {
  for (const std::string text : {"",
                                 "2024",
                                 "2024-02-29",
                                 "2024-02-30T12:30:05",
                                 "2023-02-29T12:30:05",
                                 "2024-13-01T00:00:00",
                                 "2024-02-29T24:00:00",
                                 "2024-02-29T12:60:05",
                                 "2024-02-29T12:30:60",
                                 "0000-01-01T00:00:00",
                                 "2024-02-29 12:30:05",
                                 "2024-02-29T12:30:05Z",
                                 "2024-02-29T12:30:05.25",
                                 "2024-02-29T12:30:05.25000x",
                                 "2024-02-29T12:30:05+01:00",
                                 "+024-02-29T12:30:05",
                                 "2024-02-29T12:30:05.250000+00:00 ",
                                 "2024-02-29T12:30:05+00:00+00:00",
                                 "2024-02-29T12:30:05.1250000",
                                 " 2024-02-29T12:30:05"}) {
    CAPTURE(text);
    CHECK_FALSE(seconds_of_journal_time(text));
  }
}

TEST_CASE("a time that is written is the time that is read") {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const double before = now();
  const auto time = seconds_of_journal_time(etude::detail::journal_time()).value();
  CHECK(time >= before - 1e-5);
  CHECK(time <= now() + 1e-5);
}

TEST_CASE("a trial knows when it began and ended") {
  const toy::Folder folder;
  etude::Study study({.journal = folder / "study.log"});
  study.enqueue_trial({});
  CHECK_FALSE(study.trials()[0].datetime_start);
  study.tell(study.ask(), 1);
  auto running = study.ask();
  etude::Study other({.journal = folder / "study.log"});
  const auto trials = other.trials();
  CHECK(trials[0].datetime_start.value() > 1.7e9);
  CHECK(trials[0].datetime_complete.value() >= trials[0].datetime_start.value());
  CHECK(trials[1].datetime_start.value() >= trials[0].datetime_complete.value());
  CHECK_FALSE(trials[1].datetime_complete);
}

TEST_CASE("a time in a journal that nobody understands is left out") {
  const toy::Folder folder;
  toy::write_text(folder / "study.log",
                  R"({"op_code":0,"worker_id":"w","study_name":"etude","directions":[1]}
{"op_code":4,"worker_id":"w","study_id":0,"datetime_start":"yesterday"}
{"op_code":4,"worker_id":"w","study_id":0,"datetime_start":17}
{"op_code":6,"worker_id":"w","trial_id":0,"state":1,"values":[2],"datetime_complete":"2024-02-29T12:30:05"}
)");
  etude::Study study({.journal = folder / "study.log"});
  const auto trials = study.trials();
  CHECK_FALSE(trials[0].datetime_start);
  CHECK(trials[0].datetime_complete == 1709209805);
  CHECK_FALSE(trials[1].datetime_start);
}

}  // namespace study_journal_time_test
