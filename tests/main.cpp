#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

namespace {

/// The test cases that checked nothing: `name`, or `name / subcase` for one way through a case's subcases.
std::vector<std::string> without_assertion;

/// Counts the assertions of each test case, and of each way through its subcases.
class CountsAssertions final : public doctest::IReporter {
 public:
  explicit CountsAssertions(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData& test) override { begin(test); }
  void test_case_reenter(const doctest::TestCaseData& test) override {
    end();
    begin(test);
  }
  void test_case_end(const doctest::CurrentTestCaseStats&) override { end(); }
  void test_case_exception(const doctest::TestCaseException&) override { ++assertions_; }  // it fails anyway
  void subcase_start(const doctest::SubcaseSignature& subcase) override {
    name_ += std::string(" / ") + subcase.m_name.c_str();
  }
  void log_assert(const doctest::AssertData&) override { ++assertions_; }
  void log_message(const doctest::MessageData& message) override {
    if (message.m_severity != doctest::assertType::is_warn) ++assertions_;  // FAIL, not MESSAGE
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void subcase_end() override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  void begin(const doctest::TestCaseData& test) {
    name_ = test.m_name;
    assertions_ = 0;
  }
  void end() const {
    if (assertions_ == 0) without_assertion.push_back(name_);
  }

  std::string name_ = {};
  std::atomic<int> assertions_ = 0;  // asserts may come from any thread
};
REGISTER_LISTENER("assertions", 1, CountsAssertions);

// CTest runs this with --no-skip and expects the run to fail.
TEST_CASE("a test case without an assertion fails" * doctest::skip()) {
  SUBCASE("with an assertion") { CHECK(true); }
  SUBCASE("without") {}
}

}  // namespace

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int result = context.run();
  for (const auto& name : without_assertion)
    std::fprintf(stderr, "ERROR: no assertion in: %s\n", name.c_str());
  return result != 0 ? result : without_assertion.empty() ? 0 : 1;
}
