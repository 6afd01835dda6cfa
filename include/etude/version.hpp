#pragma once

/// major * 10000 + minor * 100 + patch. The build reads the project's version from this line. The major
/// version is also the name of the inline namespace that everything stands in, `etude::v0`: what was compiled
/// with another one doesn't link.
#define ETUDE_VERSION 100
