#include "etude/tune/search_fields.hpp"

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/study/study.hpp"

namespace tune_search_fields_test {

using etude::Choices;
using etude::FloatRange;
using etude::IntRange;
using etude::detail::searched_values;

ETUDE_ENUM(Shape, line, curve);
constexpr std::array<double, 3> sizes{16, 32, 64};
constexpr std::array<std::string_view, 2> files{"a.txt", "b.txt"};

struct Fields {
  ETUDE_STRUCT(Fields, (double, rate, "" | searched(1e-4, 1).log(), 0.1),
               (float, share, "" | searched(0, 1).step(0.25), 0.0F),
               (std::int64_t, layers, "" | at_least(1) | searched(1, 9).step(2), 1),
               (std::optional<std::int64_t>, size, "" | searched_among(sizes)), (bool, bias, "" | searched()),
               (Shape, shape, "" | searched(), Shape::line),
               (std::string, file, "" | not_empty() | searched_among(files), "c.txt"),
               (double, plain, "not searched", 2));
};

TEST_CASE("a field that is searched has the values of its type") {
  Fields fields;
  const auto all = etude::detail::search_fields(fields);
  REQUIRE(all.size() == 8);
  CHECK(std::get<FloatRange>(searched_values(all[0])) == FloatRange{1e-4, 1, true});
  CHECK(std::get<FloatRange>(searched_values(all[1])) == FloatRange{0, 1, false, 0.25});
  CHECK(std::get<IntRange>(searched_values(all[2])) == IntRange{1, 9, false, 2});
  CHECK(std::get<Choices>(searched_values(all[3])) == Choices{{16, 32, 64}});
  CHECK(std::get<Choices>(searched_values(all[4])) == Choices{{false, true}});
  CHECK(std::get<Choices>(searched_values(all[5])) == Choices{{"line", "curve"}});
  CHECK(std::get<Choices>(searched_values(all[6])) == Choices{{"a.txt", "b.txt"}});
}

TEST_CASE("a trial sets the fields that are searched, and no other") {
  etude::Study study({.sampler = std::make_shared<etude::RandomSampler>()});
  study.enqueue_trial({{"rate", 0.5},
                       {"share", 0.75},
                       {"layers", 7},
                       {"size", 64},
                       {"bias", true},
                       {"shape", "curve"},
                       {"file", "b.txt"}});
  auto trial = study.ask();
  Fields fields;
  etude::suggest(trial, fields);
  CHECK(fields.rate == 0.5);
  CHECK(fields.share == 0.75F);
  CHECK(fields.layers == 7);
  CHECK(fields.size == 64);
  CHECK(fields.bias);
  CHECK(fields.shape == Shape::curve);
  CHECK(fields.file == "b.txt");
  CHECK(fields.plain == 2);
  CHECK(trial.params().size() == 7);
}

struct Conditional {
  ETUDE_STRUCT(Conditional, (bool, deep, "" | searched(), false),
               (std::int64_t, layers, "" | searched(2, 9).only_if("deep", "true"), 1),
               (double, plain, "", 2.5), (double, other, "" | searched(0, 1).only_if("plain", "2.50"), 5),
               (double, never, "" | searched(0, 1).only_if("plain", "2"), 5));
};

TEST_CASE("a field with a condition is searched if another field has its value, searched or not") {
  etude::Study study({});
  for (const bool deep : {true, false}) {
    study.enqueue_trial({{"deep", deep}});
    auto trial = study.ask();
    Conditional fields;
    etude::suggest(trial, fields);
    CHECK(fields.deep == deep);
    CHECK((fields.layers > 1) == deep);
    CHECK(trial.params().contains("layers") == deep);
    CHECK(trial.params().contains("other"));
    CHECK_FALSE(trial.params().contains("never"));
  }
}

struct OfText {
  ETUDE_STRUCT(OfText, (std::string, name, "" | searched(), ""));
};
struct OfFraction {
  ETUDE_STRUCT(OfFraction, (std::int64_t, count, "" | searched(0.5, 4), 1));
};
struct WithoutRange {
  ETUDE_STRUCT(WithoutRange, (double, dropout, "" | searched(), 0.1));
};
struct RangeOfEnum {
  ETUDE_STRUCT(RangeOfEnum, (Shape, shape, "" | searched(0, 1), Shape::line));
};
struct StepsBack {
  ETUDE_STRUCT(StepsBack, (double, share, "" | searched(0, 1).step(-1), 0.1));
};
struct LogOfChoices {
  ETUDE_STRUCT(LogOfChoices, (double, share, "" | searched_among(sizes).log(), 0.1));
};
struct Later {
  ETUDE_STRUCT(Later, (double, rate, "" | searched(0, 1).only_if("deep", "true"), 1),
               (bool, deep, "" | searched(), false));
};
struct NoSuchValue {
  ETUDE_STRUCT(NoSuchValue, (Shape, shape, "" | searched(), Shape::line),
               (double, rate, "" | searched(0, 1).only_if("shape", "curved"), 1));
};
struct OfUnknown {
  ETUDE_STRUCT(OfUnknown, (double, rate, "" | searched(0, 1).only_if("optm", "sgd"), 1),
               (std::string, optim, "", ""));
};

TEST_CASE("a search that makes no sense for a field is an error that names it") {
  const auto fault = [](auto fields) {
    return toy::fault_of<etude::ArgumentError>([&] {
      etude::Study study({});
      auto trial = study.ask();
      etude::suggest(trial, fields);
    });
  };
  CHECK(fault(OfText{}) == "name is searched: must name its values by searched_among");
  CHECK(fault(OfFraction{}) == "count is searched from 0.5 to 4: must be whole numbers");
  CHECK(fault(WithoutRange{}) == "dropout is searched: must have a range, searched(low, high)");
  CHECK(fault(RangeOfEnum{}) == "shape is searched: must have no range, since it isn't a number");
  CHECK(fault(StepsBack{}) == "share is searched: must have a positive step");
  CHECK(fault(LogOfChoices{}) == "share is searched: log() and step() need a range, searched(low, high)");
  CHECK(fault(Later{}) == "rate is searched only if deep is true: deep must be an earlier field");
  CHECK(toy::contains(fault(NoSuchValue{}), "curved"));
  CHECK(fault(OfUnknown{}) == "hp_space has optm: must be a field of OfUnknown; did you mean 'optim'?");
}

TEST_CASE("a range beyond the values that a field allows is an error, and so is a value of another type") {
  Fields fields;
  const auto all = etude::detail::search_fields(fields);
  CHECK(toy::fault_of<etude::ArgumentError>([&] {
          etude::detail::check_range(etude::detail::find_field(all, "layers"), IntRange{0, 3});
        }) == "hp_space has 0 for layers: must be at least 1");
  etude::detail::check_range(etude::detail::find_field(all, "layers"), IntRange{1, 3});
  CHECK(toy::fault_of<etude::ArgumentError>([&] { etude::detail::find_field(all, "layers").set("x"); }) ==
        "layers is \"x\": must be a whole number");
}

}  // namespace tune_search_fields_test
