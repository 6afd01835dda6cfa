#pragma once

/// major * 10000 + minor * 100 + patch. The build reads the project's version from this line. The major
/// version also names the inline namespace that contains everything, `etude::v0`, so code compiled with
/// another major version doesn't link.
#define ETUDE_VERSION 100
