#pragma once

#ifndef ETUDE_CODECARBON
#error "etude/integrations/codecarbon.hpp needs a library: link etude::codecarbon"
#endif

/// CodeCarbonCallback. Its declaration is in a file of its own because its parts need it, too.
#include "etude/integrations/codecarbon/codecarbon_callback.hpp"
