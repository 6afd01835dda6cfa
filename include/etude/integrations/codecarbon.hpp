#pragma once

#ifndef ETUDE_CODECARBON
#error "etude/integrations/codecarbon.hpp needs a library: link etude::codecarbon"
#endif

/// CodeCarbonCallback. It is declared in a separate file because its parts include it, too.
#include "etude/integrations/codecarbon/codecarbon_callback.hpp"
