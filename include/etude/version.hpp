#pragma once

/// major * 10000 + minor * 100 + patch. The build reads the project's version from this line.
#define ETUDE_VERSION 100
