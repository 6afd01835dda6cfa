#pragma once
// Empty: ProcessGroupGloo.hpp includes it without using it.
