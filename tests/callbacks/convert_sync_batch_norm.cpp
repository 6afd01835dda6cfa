#include "etude/callbacks/convert_sync_batch_norm.hpp"

#include <doctest/doctest.h>

#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_convert_sync_batch_norm_test {

TEST_CASE("in one process it is refused when the trainer is built") {
  CHECK_THROWS_WITH_AS(
      etude::Trainer<etude::ConvertSyncBatchNormCallback>(toy::options(toy::arguments())),
      "ConvertSyncBatchNormCallback: this trainer runs in one process, so a batch norm has no others to "
      "share statistics with; leave the callback out",
      etude::ArgumentError);
}

}  // namespace callbacks_convert_sync_batch_norm_test
