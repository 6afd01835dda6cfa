#include "etude/study/remote_study.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/io/descriptor.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/json_parser.hpp"

namespace etude::inline v0 {
namespace detail {

/// Sends a request and passes the answer to `read`.
template <class Read>
auto exchanged(const RemoteStudy::Exchange& exchange, const RemoteStudy::Json& request, Read read) {
  const auto answer = exchange(request);
  if (answer.is_object() && answer.contains("error"))
    throw Error(fmt::format("the study's program answers: {}", answer["error"].is_string()
                                                                   ? answer["error"].get<std::string>()
                                                                   : answer["error"].dump()));
  try {
    return read(answer);
  } catch (const std::exception& error) {
    throw CommunicationError(
        fmt::format("the study's program answers {} to {}: {}", answer.dump(), request.dump(), error.what()));
  }
}

namespace {

class RemoteTrial final : public Trial {
 public:
  using Json = nlohmann::ordered_json;

  RemoteTrial(std::shared_ptr<RemoteStudy::Exchange> exchange, std::int64_t number)
      : exchange_(std::move(exchange)), trial_{.number = number} {}

  std::int64_t number() const override { return trial_.number; }

  Json suggest(const std::string& name, const Distribution& distribution) override {
    if (trial_.params.contains(name)) return trial_.param(name);
    check_distribution(name, distribution);
    const Json request{
        {"suggest",
         {{"number", number()}, {"name", name}, {"distribution", distribution_json(distribution)}}}};
    trial_.params[name] = exchanged(*exchange_, request, [&](const Json& answer) {
      return to_number(name, distribution, answer.at("value"));
    });
    trial_.distributions[name] = distribution;
    return trial_.param(name);
  }

  void report(double value, std::int64_t step) override {
    const Json request{{"report", {{"number", number()}, {"step", step}, {"value", to_json_value(value)}}}};
    trial_.intermediate_values.try_emplace(step, value);
    is_pruned_ =
        exchanged(*exchange_, request, [](const Json& answer) { return answer.at("prune").get<bool>(); });
  }

  bool should_prune() override { return is_pruned_; }

  void set_user_attr(const std::string& name, const Json& value) override {
    exchanged(*exchange_, {{"set_user_attr", {{"number", number()}, {"name", name}, {"value", value}}}},
              [](const Json&) {});
    trial_.user_attrs[name] = value;
  }

  FrozenTrial frozen() const override { return trial_; }

 private:
  std::shared_ptr<RemoteStudy::Exchange> exchange_;
  FrozenTrial trial_;
  bool is_pruned_ = false;
};

}  // namespace

}  // namespace detail

std::unique_ptr<Trial> RemoteStudy::ask(const std::vector<StudyDirection>& directions) {
  Json names = Json::array();
  for (const auto direction : directions) names.push_back(to_string(direction));
  return detail::exchanged(
      *exchange_, {{"ask", {{"directions", names}}}}, [&](const Json& answer) -> std::unique_ptr<Trial> {
        const auto& number = answer.at("number");
        if (number.is_null()) return nullptr;
        return std::make_unique<detail::RemoteTrial>(exchange_, from_json_value<std::int64_t>(number));
      });
}

void RemoteStudy::tell(const Trial& trial, const std::vector<double>& values) {
  detail::exchanged(
      *exchange_,
      {{"tell", {{"number", trial.number()}, {"state", "complete"}, {"values", to_json_value(values)}}}},
      [](const Json&) {});
}

void RemoteStudy::tell(const Trial& trial, TrialState state) {
  detail::exchanged(
      *exchange_, {{"tell", {{"number", trial.number()}, {"state", to_string(state)}, {"values", nullptr}}}},
      [](const Json&) {});
}

RemoteStudy::Exchange exchange_lines(int in, int out) {
  return [in, out, rest = std::string()](const nlohmann::ordered_json& request) mutable {
    const auto fault = [](std::string_view what) {
      return CommunicationError(
          fmt::format("the study's program {}: {}", what,
                      errno == 0 ? "it has ended" : std::generic_category().message(errno)));
    };
    const auto line = request.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    for (std::string_view left = line; !left.empty();) {
      const auto size = detail::uninterrupted([&] { return ::write(out, left.data(), left.size()); });
      if (size < 0) throw fault("takes no requests");
      left.remove_prefix(static_cast<std::size_t>(size));
    }
    std::size_t end;
    std::array<char, 4096> buffer;
    while ((end = rest.find('\n')) == rest.npos) {
      errno = 0;
      const auto size = detail::uninterrupted([&] { return ::read(in, buffer.data(), buffer.size()); });
      if (size <= 0) throw fault("gives no answers");
      rest.append(buffer.data(), static_cast<std::size_t>(size));
    }
    const auto answer = rest.substr(0, end);
    rest.erase(0, end + 1);
    try {
      return parse_json(answer);
    } catch (const ArgumentError& error) {
      throw CommunicationError(fmt::format("the study's program answers '{}': {}", answer, error.what()));
    }
  };
}

}  // namespace etude::inline v0
