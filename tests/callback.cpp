#include "etude/callback.hpp"

#include <doctest/doctest.h>

#include <concepts>

#include "etude/dispatch/callback_checks.hpp"

namespace callback_test {

// The compiler evaluates these concepts, so most checks are static assertions.

struct Base {};
struct StepEnd : Base {};
struct EpochEnd : Base {};
struct Own {};

using etude::Handles;
using etude::Writes;
using etude::detail::has_foreign_handler;
using etude::detail::meant_for;

struct Reads {
  void on(const StepEnd&);
};
static_assert(Handles<Reads, StepEnd> && !Writes<Reads, StepEnd> && !Handles<Reads, EpochEnd>);

struct WritesIt {
  void on(StepEnd&);
};
static_assert(Handles<WritesIt, StepEnd> && Writes<WritesIt, StepEnd>);

struct ByValue {
  void on(StepEnd);
};
static_assert(Handles<ByValue, StepEnd> && !Writes<ByValue, StepEnd>);

struct Everything {
  void on(const auto&);
};
static_assert(Handles<Everything, StepEnd> && Handles<Everything, Own> && !Writes<Everything, StepEnd>);
static_assert(!has_foreign_handler<Everything, StepEnd>());

struct OfOneBase {
  template <std::derived_from<Base> Event>
  void on(const Event&);
};
static_assert(Handles<OfOneBase, StepEnd> && !Handles<OfOneBase, Own>);

struct TheBaseItself {
  void on(const Base&);
};
static_assert(Handles<TheBaseItself, StepEnd> && Handles<TheBaseItself, EpochEnd>);
static_assert(!has_foreign_handler<TheBaseItself, StepEnd, EpochEnd>());

struct InManyForms {
  static void on(const StepEnd&, int = 0) noexcept;
};
struct Inherited : InManyForms {};
struct Constant {
  void on(const StepEnd&) const;
};
static_assert(Handles<InManyForms, StepEnd> && Handles<Inherited, StepEnd> && Handles<Constant, StepEnd>);
static_assert(!has_foreign_handler<InManyForms, StepEnd>() && !has_foreign_handler<Inherited, StepEnd>());

struct Overloaded {
  void on(const StepEnd&);
  void on(EpochEnd&);
};
static_assert(!has_foreign_handler<Overloaded, StepEnd, EpochEnd>());
static_assert(has_foreign_handler<Overloaded, StepEnd>());
static_assert(has_foreign_handler<Overloaded, Own>(), "two that are foreign are as much so as one");

struct Final final {
  void on(const StepEnd&);
  void on(const EpochEnd&);
};
static_assert(!has_foreign_handler<Final, StepEnd, EpochEnd>() && has_foreign_handler<Final, StepEnd>());

struct ByPointer {
  void on(StepEnd*);
};
struct ByRvalue {
  void on(StepEnd&&);
};
struct WithMore {
  void on(const StepEnd&);
  void on(const EpochEnd&, int);
};
static_assert(!Handles<ByPointer, StepEnd> && meant_for<ByPointer, StepEnd> &&
              !meant_for<ByPointer, EpochEnd>);
static_assert(!Handles<ByRvalue, StepEnd> && meant_for<ByRvalue, StepEnd>);
static_assert(!Handles<WithMore, EpochEnd> && meant_for<WithMore, EpochEnd>);

static_assert(std::same_as<etude::detail::declared_events_t<Reads>, etude::events<StepEnd>>);
static_assert(std::same_as<etude::detail::declared_events_t<Constant>, etude::events<StepEnd>>);
static_assert(std::same_as<etude::detail::declared_events_t<Overloaded>, etude::events<>>);

struct OwnEvents {
  void on(const Own&);
};
using Raised = etude::events<StepEnd, EpochEnd>;

TEST_CASE("a handler of a custom event is accepted in an open world, but not in a closed one") {
  CHECK(etude::CallbackChecks<Raised, false, OwnEvents>::passed());
  CHECK(etude::CallbackChecks<etude::events<StepEnd, Own>, true, OwnEvents>::passed());
  CHECK(has_foreign_handler<OwnEvents, StepEnd, EpochEnd>());
}

struct Last;
struct First {
  using runs_before = etude::callbacks<Last>;
  void on(const StepEnd&);
};
struct Middle {
  void on(const StepEnd&);
};
struct Last {
  using runs_after = etude::callbacks<Middle>;
  void on(const StepEnd&);
};

TEST_CASE("declared orders apply transitively") {
  struct A;
  constexpr auto follows = etude::detail::order_closure<First, Middle, Last>();
  CHECK(follows[2 * 3 + 0]);        // Last follows First
  CHECK(follows[2 * 3 + 1]);        // and Middle,
  CHECK_FALSE(follows[1 * 3 + 0]);  // but Middle declares no order with First
  CHECK(etude::CallbackChecks<Raised, false, First, Middle, Last>::passed());
}

}  // namespace callback_test
