// EXPECT: cannot bind rvalue reference of type .*Expression&&
// EXPECT-CLANG: invalid operands to binary expression .*Expression
// NEEDS: torch
#include "etude/optim/elements.hpp"

etude::detail::Elements twice_the_sum(const etude::detail::Elements& a, const etude::detail::Elements& b) {
#ifdef ETUDE_MISTAKE
  auto sum = a + b;
#else
  const etude::detail::Elements sum = a + b;
#endif
  return sum * 2;
}
