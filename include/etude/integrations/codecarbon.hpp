#pragma once

/// CodeCarbonCallback. Its declaration is in a file of its own because its parts need it, too.
#include "etude/integrations/codecarbon/codecarbon_callback.hpp"

#ifndef ETUDE_COMPILED
#include "etude/integrations/impl/codecarbon.ipp"
#endif
